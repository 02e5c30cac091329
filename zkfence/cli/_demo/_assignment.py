"""Assignment: what a worker process is told when it starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self


class StoreKind(StrEnum):
    FILE = "file"
    REDIS = "redis"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the reports are: a folder, or the URL of a Redis server and the prefix of the keys there."""

    kind: StoreKind
    place: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One worker's name, lock and report, and where to find ZooKeeper and the store. Timeouts are in seconds."""

    name: str
    hosts: str
    session_timeout: float
    namespace: str
    lock: str
    resource: str
    store: StoreAddress

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        store = fields.pop("store")
        return cls(**fields, store=StoreAddress(StoreKind(store["kind"]), store["place"], store["prefix"]))
