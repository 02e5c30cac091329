"""Layout: where a namespace keeps what, and in which format. The picture is in the design, 'The counter path'."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, Final, NamedTuple

from zkfence_receivers.words import InvalidName, encode_component

from .._errors import NamespaceDamaged

FORMAT: Final = 1
EPOCHS: Final = 2**32
CEILING: Final = 2**31 - 2**20  # a path that has handed out this number, or a negative one, is closed

MAX_CONTENDER_BYTES: Final = 1024
MAX_PERMITS: Final = 1000
_CONTENDER: Final = re.compile(r"([xr]-|s(?:[1-9][0-9]{0,2}|1000)-)([0-9]{10}|-[0-9]{9,10})", re.ASCII)
_EPOCH: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_UNUSABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")  # in a path, says ZooKeeper
_DIGITS: Final = 10


class Contender(NamedTuple):
    """A contender, as its node's name tells it. A closing number may stand on several nodes, of different prefixes."""

    number: int
    prefix: str
    name: str


def contender_of(name: str) -> Contender | None:
    """The contender of a node's name; ``None`` for a name that no contender has."""
    match = _CONTENDER.fullmatch(name)
    return None if match is None else Contender(int(match[2]), match[1], name)


def sequence_of(path: str) -> int:
    """The number at the end of the path that ZooKeeper gave to a contender."""
    contender = contender_of(path.rpartition("/")[2])
    assert contender is not None
    return contender.number


def contender_name(prefix: str, number: int) -> str:
    """The name that ZooKeeper gives to a contender."""
    return f"{prefix}{number:0{_DIGITS}d}"


def contenders_in(names: Iterable[str]) -> list[Contender]:
    """Those children that are contenders, in no order; anything else under a counter path is ignored."""
    return [contender for name in names if (contender := contender_of(name)) is not None]


def epochs_in(names: Iterable[str]) -> list[int]:
    """The epochs of those children of a lock that are counter paths, in order; anything else beside them is ignored."""
    return sorted(epoch for name in names if _EPOCH.fullmatch(name) and (epoch := int(name)) < EPOCHS)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one namespace."""

    namespace: str

    def __post_init__(self) -> None:
        parts = self.namespace.split("/")
        if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
            raise InvalidName(f"a namespace is an absolute path such as '/zkfence', not {self.namespace!r}")
        if _UNUSABLE.search(self.namespace):
            raise InvalidName(f"ZooKeeper takes no path with the characters of namespace {self.namespace!r}")

    @property
    def epoch(self) -> str:
        return f"{self.namespace}/epoch"

    @property
    def locks(self) -> str:
        return f"{self.namespace}/locks"

    def lock(self, name: str) -> str:
        return f"{self.locks}/{encode_component(name)}"

    @property
    def ancestors(self) -> list[str]:
        """The nodes above the namespace, the highest first."""
        parts = self.namespace.split("/")[1:-1]
        return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def counter_path(lock: str, epoch: int) -> str:
    return f"{lock}/{epoch}"


def slot_name(lock_name: str, slot: int) -> str:
    """The name of the exclusive lock that is one slot of a semaphore."""
    return f"{lock_name}#{slot}"


def dump(**fields: object) -> bytes:
    """A small versioned JSON object."""
    return json.dumps({"v": FORMAT, **fields}, ensure_ascii=False, separators=(",", ":")).encode()


def fields_of(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object; none where the data is something else."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _load(path: str, data: bytes, field: str) -> object:
    fields = fields_of(data)
    if "v" not in fields or field not in fields:
        raise NamespaceDamaged(path, "its data cannot be read")
    if fields["v"] != FORMAT:
        raise NamespaceDamaged(path, f"its format is {fields['v']!r}, this version of zkfence reads {FORMAT}")
    return fields[field]


def load_namespace_id(path: str, data: bytes) -> str:
    value = _load(path, data, "id")
    if not isinstance(value, str) or not value or "/" in value:
        raise NamespaceDamaged(path, "its id cannot be read")
    return intern(value)  # every lock remembers it


def load_lock_epoch(path: str, data: bytes) -> int:
    value = _load(path, data, "epoch")
    if type(value) is not int or not 1 <= value < EPOCHS:
        raise NamespaceDamaged(path, "its epoch cannot be read")
    return value


def load_epoch(path: str, data: bytes) -> int:
    """The last epoch issued; 0 in a new namespace."""
    if not data.isdigit() or len(data) > len(str(EPOCHS)):
        raise NamespaceDamaged(path, "its data is no epoch")
    return int(data)


def dump_watermark(number: int) -> bytes:
    """The counter path's data: every contender up to ``number`` is gone."""
    return dump(gone=number)


def load_watermark(data: bytes) -> int:
    """Every contender up to this number is gone; -1 where nothing is known: it only saves a listing."""
    fields = fields_of(data) if data else {}
    gone = fields.get("gone")
    return gone if type(gone) is int and fields.get("v") == FORMAT else -1
