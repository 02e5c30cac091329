"""RedisReceiver: mark and data in Redis or Valkey, judged and changed in one step by a script on the server."""

from __future__ import annotations

try:
    import redis as _redis  # noqa: F401
except ImportError as error:
    raise ImportError("RedisReceiver needs redis-py: pip install 'zkfence[redis]'") from error

from ._receiver import RedisReceiver

__all__ = ["RedisReceiver"]
