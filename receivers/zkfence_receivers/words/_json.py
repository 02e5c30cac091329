"""JSON objects as they were meant: a name that stands twice is read differently by different readers."""

from __future__ import annotations

import json
from typing import Any


def load_object(text: str | bytes) -> dict[str, Any]:
    """Read a JSON object. Raises ValueError for anything else, and for a name that stands twice anywhere in it."""
    try:
        fields = json.loads(text, object_pairs_hook=_unique)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    return fields


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice in it")
    return fields
