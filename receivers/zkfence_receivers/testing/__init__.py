"""Real Redis servers for tests: yours of your own workers, and ours.

The worker's side has ``zkfence.testing``: ZooKeeper ensembles, the pytest fixtures and a helper for zombies.
"""

from ._errors import LocalServerError, ServerFailed, ServerNotFound
from ._redis import LocalRedis

__all__ = ["LocalRedis", "LocalServerError", "ServerFailed", "ServerNotFound"]
