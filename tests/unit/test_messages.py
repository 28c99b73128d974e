"""tools/messages.py: the texts that users can see, as `make messages` writes them."""

from __future__ import annotations

from pathlib import Path

import messages
import pytest

SOURCE = '''"""Owns nothing at all."""

_HINT = "give a name"


def check(name, option):
    """Return a problem, in many words."""
    why = f"{name!r} is not a valid name"
    _note("no job was found")
    raise Invalid(Problem("name", why, _HINT))
    why = "is for something else"


app.option(help="Print JSON.")
ANSWER = {"key": "several words here"}
'''


def test_each_text_has_its_place_and_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    assert [str(m).replace(str(path), "module.py") for m in messages.read(path)] == [
        "module.py:8 text\n    text:  {name} is not a valid name",
        "module.py:9 _note\n    text:  no job was found",
        "module.py:10 Problem\n    where: name\n    why:   {name} is not a valid name\n    hint:  give a name",
        "module.py:11 text\n    text:  is for something else",
        "module.py:14 option\n    text:  Print JSON.",
        "module.py:15 text\n    text:  several words here",
    ]


def test_all_modules_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(messages.__file__).parents[1]
    messages.main(str(tmp_path / "all.txt"), [str(root / "components"), str(root / "provider")])
    text = (tmp_path / "all.txt").read_text()
    assert capsys.readouterr().err.endswith(f" messages in {tmp_path}/all.txt\n")
    assert "components/args/signatures.py" in text and "provider/targets/local/local_limits.py" in text
