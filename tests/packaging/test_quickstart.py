"""The README's quickstart, pasted as it stands, works with the wheel and without any extra."""

from __future__ import annotations

import re

from .conftest import ROOT, Environment


def test_works_as_it_stands_in_the_readme(bare: Environment) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^<!-- quickstart -->\n```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)

    ran = bare.run("python", "-W", "error", "-c", block)

    assert ran.returncode == 0, ran.stderr
    told = ran.stdout.splitlines()
    assert told[0] == r"token 1.0 wrote b'one more line\n'"
    assert "1.0" in told[1], "the late request is refused, and the error tells its token"
    assert "1.1" in told[1], "and the mark's"
