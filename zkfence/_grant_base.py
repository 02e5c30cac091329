"""GrantBase: what the grants of threads and of tasks have in common."""

from __future__ import annotations

from typing import NoReturn

from zkfence_receivers.words import Mode, Stamp, Stamps, Token

from ._core._layout import contender_name
from ._errors import GrantReleased
from ._holding import Holding, State


class GrantBase:
    """A handle on a lock that is held."""

    __slots__ = ("_holding", "_is_released")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._is_released = False

    @property
    def token(self) -> Token:
        """The fencing token: larger than that of every earlier grant of the same lock."""
        return self._holding.token

    @property
    def lock_name(self) -> str:
        """The lock whose token this is; for a semaphore, the lock of the slot."""
        return self._holding.lock_name

    @property
    def holder(self) -> str:
        """The GUID of the acquisition."""
        return self._holding.granted.attempt.guid

    @property
    def mode(self) -> Mode:
        """What a receiver lets this grant do: a reader's grant only reads."""
        return self._holding.mode

    @property
    def slot(self) -> int | None:
        """Which of a semaphore's slots this is, from 0; ``None`` for other locks."""
        return self._holding.granted.slot

    @property
    def path(self) -> str:
        """The contender's node in ZooKeeper."""
        attempt = self._holding.granted.attempt
        return f"{attempt.counter}/{contender_name(attempt.kind.prefix, self.token.sequence)}"

    def __repr__(self) -> str:
        state = State.RELEASED if self._is_released else self._holding.state
        return f"<Grant of {self.lock_name!r}, token {self.token.dotted}, {state.name.lower()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a grant belongs to its session and cannot be pickled; send grant.stamp(resource) instead")

    def check(self) -> None:
        """Raise `LockLost`, `GrantReleased` or `ForkedError` if the grant is known to be over.

        Returning proves nothing: it can be stale the moment it returns.
        """
        if self._is_released:
            raise GrantReleased(self.lock_name)
        self._holding.check()

    def remaining(self) -> float:
        """Seconds until the local deadline: the session surely lives so long, if nothing more is heard of ZooKeeper. 0
        for a grant that is over.

        Counted from the sending of an acknowledged write to the quorum that ZooKeeper's leader has certainly heard of,
        less a margin for clocks, on a clock that also counts suspend. A heartbeat moves it on. No promise: the process
        may be paused in the next moment, and clocks may be wrong. See also `deadline_is_verified`.
        """
        return 0.0 if self._is_released else self._holding.remaining()

    @property
    def deadline_is_verified(self) -> bool:
        """Whether the local deadline counts with the session timeout that the servers have *granted*.

        ``False``: only the one that they were asked for is known. Servers lower it to what their
        ``maxSessionTimeout`` allows, without a word, and then another worker may have the lock long before `lost` is
        set. Make the client with `zkfence.connect`, or tell the lock what the servers grant: ``session_timeout=``.
        """
        return self._holding.session.deadline_is_verified

    def stamp(self, resource: str, *, mode: Mode | None = None) -> Stamp:
        """A stamp for one request on ``resource``, to be sent to a service that has the receiver.

        ``mode`` is the grant's own where it is not given. Each write stamp has a number of its own. Send one request
        at a time per resource: a later one that overtakes makes the receiver refuse the earlier one. Raises what
        `check` raises.
        """
        stamps = self.stamps(resource)
        return stamps.reading() if (mode or self.mode) is Mode.READ else stamps.take()

    def stamps(self, resource: str) -> Stamps:
        """The one counter of this grant's requests on ``resource``; what a receiver asks for."""
        if self._is_released:
            raise GrantReleased(self.lock_name)
        return self._holding.stamps(resource)
