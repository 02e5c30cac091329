"""The lock protocol without I/O.

Each step of the protocol is a generator that yields what it wants from ZooKeeper (`Flight`, `Wait`, `Jitter`) and is
sent the answer. A driver runs it: one for threads today, one for asyncio and a simulator later. The idea is psycopg's
(``generators.py`` and ``waiting.py``).
"""
