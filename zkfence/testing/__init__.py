"""Real servers for tests, yours of your own workers and ours: ZooKeeper, Redis, and workers turned into zombies."""

from zkfence_receivers.testing import LocalRedis, LocalServerError, ServerFailed, ServerNotFound

__all__ = ["LocalRedis", "LocalServerError", "ServerFailed", "ServerNotFound"]
