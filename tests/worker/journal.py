"""Journal: what the holders of a lock did, in the order in which ZooKeeper committed it."""

from __future__ import annotations

from itertools import pairwise

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkfence import Grant


class Journal:
    """An entry is made in one transaction with a check that the grant's own node is there. So the order of the entries
    is the order in which grants were live, whoever was paused where: no clock and no thread is asked."""

    def __init__(self, zk: KazooClient, path: str) -> None:
        self._zk = zk
        self._path = path
        zk.ensure_path(path)

    def enter(self, client: KazooClient, grant: Grant) -> bool:
        """``False``: the grant's node is gone, so nothing was entered."""
        transaction = client.transaction()
        transaction.check(grant.path, -1)
        transaction.create(f"{self._path}/entry-", str(grant.token).encode(), sequence=True)
        checked, _ = transaction.commit()
        if isinstance(checked, NoNodeError):
            return False
        assert not isinstance(checked, Exception), checked
        return True

    def tokens(self) -> list[int]:
        """The entries' tokens, the first entry first."""
        return [int(self._zk.get(f"{self._path}/{name}")[0]) for name in sorted(self._zk.get_children(self._path))]

    def check(self) -> list[int]:
        """Assert that no grant was live after a later one had been; the tokens of the grants, each once."""
        tokens = self.tokens()
        assert all(one <= next_one for one, next_one in pairwise(tokens)), "an older grant was live after a newer one"
        return sorted(set(tokens))
