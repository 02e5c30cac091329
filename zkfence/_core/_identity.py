"""Identity: what a namespace's own node says."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .._errors import NamespaceDamaged
from ._layout import EPOCHS, dump, load_namespace_id


@dataclass(frozen=True, slots=True)
class Identity:
    """``id``: what stamps carry. The rest is there only in a namespace that was repaired.

    ``floor``: every lock of this epoch or an older one is to be retired, so that its next token is above. It stays when
    a repair dies half way, and the next run goes on from there. ``former``: the ids that it had before.
    """

    id: str
    floor: int = 0
    former: tuple[str, ...] = ()

    def to_data(self) -> bytes:
        return dump(id=self.id, floor=self.floor, former=self.former)


def load_identity(path: str, data: bytes) -> Identity:
    """Raises `NamespaceDamaged`."""
    namespace_id = load_namespace_id(path, data)
    fields = json.loads(data)
    floor, former = fields.get("floor", 0), fields.get("former", [])
    if type(floor) is not int or not 0 <= floor < EPOCHS:
        raise NamespaceDamaged(path, "its floor cannot be read")
    if not isinstance(former, list) or not all(isinstance(each, str) for each in former):
        raise NamespaceDamaged(path, "its former ids cannot be read")
    return Identity(namespace_id, floor, tuple(former))
