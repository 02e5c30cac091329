"""The example in docs/asyncio.md, as it stands there but for its hosts and its folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kazoo.client import KazooClient

from zkfence.testing import LocalEnsemble

PAGE = Path(__file__).parents[2] / "docs" / "asyncio.md"


def test_the_example_works(zkfence_ensemble: LocalEnsemble, zkfence_zk: KazooClient, tmp_path: Path) -> None:
    (block,) = re.findall(r"^<!-- example -->\n```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    example = block.replace("zk1:2181,zk2:2181,zk3:2181", zkfence_ensemble.hosts).replace("/srv/reports", str(tmp_path))
    assert example.count(zkfence_ensemble.hosts) == example.count(str(tmp_path)) == 1

    ran = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
    lines = next(path for path in tmp_path.rglob("*") if path.is_file() and b"line 0\n" in path.read_bytes())
    assert sorted(lines.read_bytes().splitlines()) == [b"line %d" % number for number in range(10)]
    assert zkfence_zk.get_children("/zkfence/locks/reports%2F7/1") == []
