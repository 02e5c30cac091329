"""Names of locks and resources, and their reversible encoding to one path component."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from ._errors import InvalidName

MAX_NAME_BYTES: Final = 255


def check_name(name: str, what: str) -> str:
    """Return ``name``, or raise `InvalidName`: non-empty text of at most 255 bytes of UTF-8."""
    if not isinstance(name, str):
        raise InvalidName(f"a {what} name is text, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"a {what} name must not be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"a {what} name must be valid Unicode, not {name!r}") from error
    if size > MAX_NAME_BYTES:
        raise InvalidName(f"a {what} name has at most {MAX_NAME_BYTES} bytes of UTF-8, this one has {size}")
    return name


def encode_component(name: str) -> str:
    """Encode any text as one path component: ASCII letters, digits, ``_``, ``-``, ``~``, ``.`` and ``%XX``.

    Different names give different components, and a component never starts with a dot, so ``.``, ``..`` and
    hidden names cannot come out.
    """
    component = quote(name, safe="")
    return "%2E" + component[1:] if component.startswith(".") else component


def decode_component(component: str) -> str:
    """Undo `encode_component`; raises `InvalidName` for text that it cannot have produced."""
    try:
        name = unquote(component, errors="strict")
        canonical = encode_component(name)
    except UnicodeError as error:
        raise InvalidName(f"{component!r} is no encoded name") from error
    if canonical != component:
        raise InvalidName(f"{component!r} is no encoded name")
    return name
