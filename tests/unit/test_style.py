"""tools/style.py: each rule, each word of the list and each missing description is found; lines that are marked are left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import style

BLANK = 100
"""Lines below the code of a test, which make few expressions few in relation to the lines."""


def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str) -> tuple[int, str, str]:
    """Return the exit status of the tool for a folder with this code, and what it prints on stdout and stderr."""
    (tmp_path / "module.py").write_text(code + "\n" * BLANK)
    status = style.main([str(tmp_path)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("a = 1 if b else 2 if c else 3\n", "a conditional expression inside another one"),
        ("a = [1 if b else [c if d else e]]\n", "a conditional expression inside another one"),
        ("a = [x for y in z for x in y]\n", "a comprehension with more than one `for`"),
        ("a = any(x for y in z for x in y)\n", "a comprehension with more than one `for`"),
        ("a = {x for x in y if x if x > 1}\n", "a comprehension with more than one `if`"),
        ("a = {x: y for x in z if (y := b(x))}\n", "an assignment expression inside a comprehension"),
    ],
)
def test_dense_expressions_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, why: str) -> None:
    status, out, _ = check(tmp_path, capsys, f"\n{code}")
    assert (status, out) == (1, f"{tmp_path}/module.py:2: {why}\n")


@pytest.mark.parametrize(
    "code",
    [
        "a = 1 if b else 2\n",
        "a = [x for x in y if x and x > 1]\n",
        "a = [[x for x in y] for y in z]\n",
        "if a := b:\n    c = [x for x in a]\n",
    ],
)
def test_plain_expressions_are_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str) -> None:
    status, out, _ = check(tmp_path, capsys, code)
    assert (status, out) == (0, "")


@pytest.mark.parametrize("word", style.WORDS)
@pytest.mark.parametrize("code", ['"""{}"""\n', "a = 1  # {}\n", "a = 'this {}, that'\n", "_{} = 1\n"])
def test_words_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, code: str) -> None:
    status, out, _ = check(tmp_path, capsys, "\n" + code.format(word.replace(" ", "_") if code[0] == "_" else word))
    found = f"{tmp_path}/module.py:2: {word!r}: say {style.WORDS[word]}\n"
    expected = (0, "") if code[0] == "_" and " " in word else (1, found)
    assert (status, out) == expected


PHRASES = {
    "{} can be no name": "not a valid ...",
    "mpi is no runtime": "not a ..., no ... found",
    "there is none": "no ... found, ... does not exist",
    "no YAML: line 3": "not valid ...",
    "the key is there twice": "duplicate",
    "it waits for ever": "forever",
    "it waits in vain": "what happens instead",
    "a path is wanted here": "expected ...",
    "it stands beside the policy": "is, appears",
    "its log says more": "explains, shows",
    "say access_mode=": "set, name, report",
    "it said: no": "reported",
    "what a server would have against it": "reject",
    "this cannot be had locally": "not supported by the Local target",
}


@pytest.mark.parametrize("text", PHRASES)
@pytest.mark.parametrize("code", ["a = '{}'\n", "a = f'{{b}} {}'\n", "a = {{'where': ['why', '{}']}}\n"])
def test_phrases_are_found_in_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: str) -> None:
    status, out, _ = check(
        tmp_path, capsys, "\n" + code.replace("{}", text.replace("{}", "x")).replace("{{", "{").replace("}}", "}")
    )
    assert status == 1 and out.startswith(f"{tmp_path}/module.py:2: ") and out.endswith(f": say {PHRASES[text]}\n")


def test_each_phrase_has_a_test() -> None:
    assert set(PHRASES.values()) == set(style.PHRASES.values())


@pytest.mark.parametrize(
    "code",
    [
        '"""There is none."""\n',
        "a = 1  # there is none\n",
        "a = 'there is none'  # style: kept\n",
        "a = 'is no longer'\n",
    ],
)
def test_phrases_elsewhere_are_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str) -> None:
    assert check(tmp_path, capsys, code)[:2] == (0, "")


def test_parts_of_words_are_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, capsys, "amended = 'at a glances, wishes'\n")[:2] == (0, "")


@pytest.mark.parametrize("word", style.WORDS)
def test_words_of_marked_lines_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    code = f'a = "{word}"  # style: kept\n'
    assert check(tmp_path, capsys, code)[:2] == (0, "")
    assert check(tmp_path, capsys, f"{code}{code.replace('kept', 'not kept')}")[0] == 1


def test_dense_expressions_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "a = 1 if b else 2\nc = [d for d in e]\nif f := g:\n    pass\n"
    shown = "0 found; 29 dense expressions per 1,000 lines of 104, of at most 35\n"
    assert check(tmp_path, capsys, code) == (0, "", shown)


def test_too_many_dense_expressions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, counted = check(tmp_path, capsys, "c = [d for d in e]\n" * 4)
    assert (status, out, counted) == (1, "", "0 found; 38 dense expressions per 1,000 lines of 104, of at most 35\n")


DESCRIBED = '''"""A module."""


def public(one, *, other=1):
    """Do it.

    Args:
        one: First.
        other: Second; default: 1.
    """
'''
"""A module whose function describes its arguments."""


@pytest.mark.parametrize(
    ("definition", "missing"),
    [
        (DESCRIBED, ""),
        (DESCRIBED.replace("        other: Second; default: 1.\n", ""), "other"),
        (DESCRIBED.replace("    Args:\n", ""), "one, other"),
        (DESCRIBED.replace("    Args:\n", "").replace("def", "async def"), "one, other"),
        ('"""A module."""\ndef public(one, other): ...\n', "one, other"),
        ('"""A module."""\ndef public(one, *others, **more): ...\n', ""),
    ],
)
@pytest.mark.parametrize(
    ("place", "exported"),
    [
        ("first/module.py", "from pulumi_trainer.first.module import public\n"),
        ("client.py", ""),
        ("first/module.py", ""),
    ],
)
def test_functions_that_programs_import_describe_their_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], definition: str, missing: str, place: str, exported: str
) -> None:
    module = tmp_path / "components" / place
    for path, text in {place: definition, "__init__.py": exported}.items():
        file = tmp_path / "components" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    status, out = style.main([str(tmp_path / "components")]), capsys.readouterr().out
    if place != "client.py" and not exported:
        missing = ""
    line = next(i for i, text in enumerate(definition.split("\n"), 1) if "def " in text)
    found = f"{module}:{line}: public: describe {missing} below `Args:`\n"
    assert (status, out) == ((1, found) if missing else (0, ""))
