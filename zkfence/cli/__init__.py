"""The command line: ``zkfence``. In the extra ``zkfence[cli]``."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["main"]

_EXTRA: Final = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line and exit with its status: 2 where the extra is not installed."""
    try:
        from ._app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            f"The command line needs {error.name}, which is not installed. It comes with an extra of zkfence:\n\n"
            "    pip install 'zkfence[cli]'\n"
        )
        sys.exit(2)
    app()
