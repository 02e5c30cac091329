"""The lock protocol without I/O.

Each step of the protocol is a generator that yields what it wants from ZooKeeper (`Flight`, `Wait`, `Jitter`) and is
sent the answer. A driver runs it: that of threads (``zkfence._threads``), of tasks (``zkfence.aio``), or the simulation
of the tests. The idea is psycopg's (``generators.py`` and ``waiting.py``).
"""
