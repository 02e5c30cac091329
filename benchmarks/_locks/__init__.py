"""What `benchmarks.locks` is made of.

Each contender runs in a process of its own, its worker, which obeys a few commands on its standard input; the benchmark
itself (`_run`) sleeps while they work, and knows of no contender's inside.
"""
