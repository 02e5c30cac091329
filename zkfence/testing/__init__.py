"""Real servers for tests, yours of your own workers and ours: ZooKeeper, Redis, and workers turned into zombies.

`LocalEnsemble` and `LocalRedis` start servers, `Zombie` pauses a worker process past the end of its session. The
pytest plugin ``zkfence.testing.plugin`` has fixtures for all of it. For POSIX systems.
"""

from zkfence_receivers.testing import LocalRedis, LocalServerError, ServerFailed, ServerNotFound

from ._contenders import FindNode, holding, waiting
from ._ensemble import LocalEnsemble
from ._node import LocalNode, Role
from ._zombie import Zombie, ZombieError

__all__ = [
    "FindNode",
    "LocalEnsemble",
    "LocalNode",
    "LocalRedis",
    "LocalServerError",
    "Role",
    "ServerFailed",
    "ServerNotFound",
    "Zombie",
    "ZombieError",
    "holding",
    "waiting",
]
