"""What can go wrong with files, by what it says about the change that was under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Misplaced(OSError):
    """Something that cannot be ours (a symbolic link, a folder, a device) is where a file of ours belongs."""


class Unsettled(Exception):
    """A change was made, but whether it would survive a crash of the machine is not known.

    An `OSError` means the opposite: the change did not happen.
    """


@contextmanager
def after_commit() -> Iterator[None]:
    """For steps that follow the commit point: whatever fails there does not undo the change."""
    try:
        yield
    except OSError as error:
        raise Unsettled(str(error)) from error
