"""Journal: what the holders of a lock did, in the order in which ZooKeeper committed it."""

from __future__ import annotations

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

    def enter(self, client: KazooClient, grant: Grant, *, shared: bool = False) -> bool:
        """``shared``: a reader's. ``False``: the grant's node is gone, so nothing was entered."""
        transaction = client.transaction()
        transaction.check(grant.path, -1)
        transaction.create(f"{self._path}/entry-", f"{grant.token} {int(shared)}".encode(), sequence=True)
        checked, _ = transaction.commit()
        if isinstance(checked, NoNodeError):
            return False
        assert not isinstance(checked, Exception), checked
        return True

    def check(self) -> list[int]:
        """Assert that no grant was live after a later one had been, but readers beside readers; the tokens of all
        grants, each once."""
        latest = latest_alone = -1
        tokens: set[int] = set()
        for name in sorted(self._zk.get_children(self._path)):
            token, shared = map(int, self._zk.get(f"{self._path}/{name}")[0].split())
            assert token >= (latest_alone if shared else latest), "an older grant was live after a newer one"
            latest = max(latest, token)
            latest_alone = latest_alone if shared else token
            tokens.add(token)
        return sorted(tokens)
