"""Documents out of files: what they are to Kubernetes' tools, and what cannot be read, told and bounded."""

from __future__ import annotations

import io
import json
import math
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents_support import HEAD, WRONG
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values import documents as module
from pulumi_trainer.provider.kubernetes.values import yaml_scalars
from pulumi_trainer.provider.kubernetes.values.documents import documents, parse, read_all

# What sigs.k8s.io/yaml v1.6.0 makes of `a: SCALAR`, as JSON. Recorded.
RECORDED = r"""
y true|Y true|n false|N false|yes true|No false|on true|OFF false|true true|True true|tRUE "tRUE"|null null|Null null|
~ null|NULL null|nULL "nULL"|1 1|-1 -1|+1 1|0 0|-0 0|007 7|0777 511|08 8|09.5 9.5|0o17 15|0x10 16|0xfF 255|-0x10 -16|
+0x10 16|0b101 5|-0b101 -5|0B1 1|0O17 15|0X1F 31|1_000 1000|1__0 10|_1 "_1"|0_7 7|1e3 1000|1E3 1000|1e9 1000000000|
1e+9 1000000000|1e-9 1e-9|1.0 1|2.0 2|1.5 1.5|1.10 1.1|.5 0.5|-.5 -0.5|+.5 0.5|5. 5|.e5 ".e5"|. "."|+ "+"|..5 "..5"|
1.5.6 "1.5.6"|1:30 "1:30"|12:30:45 "12:30:45"|2026-01-02 "2026-01-02"|2026-01-02T03:04:05Z "2026-01-02T03:04:05Z"|
2026-1-2 "2026-1-2"|1e20 100000000000000000000|1e18 1000000000000000000|9223372036854775807 9223372036854775807|
18446744073709551616 18446744073709552000|-9223372036854775808 -9223372036854775808|1e308 1e+308|1e999 "1e999"|
-9223372036854775809 -9223372036854776000|99999999999999999999999999 1e+26|0.1 0.1|-0.0 0|100Mi "100Mi"|500m "500m"|
0.30000000000000004 0.30000000000000004|inf "inf"|nan "nan"|= "="|0x "0x"|0b2 "0b2"|0o8 "0o8"|0b "0b"|1e "1e"|
1e+ "1e+"|1_.5 1.5|._5 "._5"|.5_0 0.5|0x1p-2 "0x1p-2"|0xg "0xg"|1.e5 100000|+a "+a"|-1_0 -10|1,000 "1,000"|1d "1d"|
0777.5 777.5|-0777 -511|+0777 511|0o "0o"|00 0|01e1 10
"""
SCALARS = [tuple(item.strip().rsplit(" ", 1)) for item in RECORDED.split("|")]


@pytest.mark.parametrize(("text", "wanted"), SCALARS)
def test_scalars_without_quotes(text: str, wanted: str) -> None:
    found = read_all(f"{HEAD}a: {text}\n")[0]["a"]
    value = json.loads(wanted)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    assert found == value and type(found) is type(value)


def test_an_empty_scalar_is_null() -> None:
    assert read_all(f"{HEAD}a:\nb: ''\n")[0] == {"apiVersion": "v1", "kind": "Thing", "a": None, "b": ""}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("!!str 5", "5"), ('!!int "5"', 5), ("!!float 5", 5), ("!!bool yes", True), ("!!null ''", None),
        ("!!str", ""), ("!!map {a: 1}", {"a": 1}), ("!!seq [1]", [1]), ("'yes'", "yes"), ("|\n  1\n", "1\n"),
    ],
)  # fmt: skip
def test_tags_and_quotes(text: str, wanted: Any) -> None:
    assert read_all(f"{HEAD}a: {text}\n")[0]["a"] == wanted


def test_golden_inputs_are_what_pyyaml_reads() -> None:
    cases = sorted((Path(__file__).parents[1] / "golden" / "cases").glob("*/input.yaml"))
    assert len(cases) > 300
    for case in cases:
        assert read_all(case) == [d for d in yaml.load_all(case.read_text(), yaml.CSafeLoader) if d], case


def test_documents_know_where_they_were() -> None:
    text = f"# a\n---\n{HEAD}---\n---\n# none\n--- # c\n{HEAD}spec:\n  env:\n  - name: a\n    value: 1.10\n...\n---\n{HEAD}"
    first, second, third = parse(text, "f.yaml")
    assert (first.number, first.line, str(first)) == (1, 1, "f.yaml, document 1")
    assert (second.number, second.line) == (4, 8)
    assert third.number == 5
    assert second.line_of("spec.env[0].value") == 14
    assert second.plain_scalar("spec.env[0].value") == "1.10"
    assert second.plain_scalar("kind") == "Thing" and second.plain_scalar("spec") is None
    assert second.line_of("spec.env[0].nothing.at[3]") == 13
    assert second.line_of("spec.env[7]") == 12
    assert second.line_of("metadata.name") == 8


def test_quoted_scalars_are_not_told_as_written() -> None:
    (document,) = parse(f"{HEAD}a: '1'\nb: {{c: [x, yes]}}\n")
    assert document.plain_scalar("a") is None
    assert document.plain_scalar("b.c[1]") == "yes"


@pytest.mark.parametrize("kind", ["List", "ThingList"])
def test_lists_are_expanded(kind: str) -> None:
    items = "- {apiVersion: v1, kind: A}\n- apiVersion: v1\n  kind: B\n  spec:\n    a: 1\n"
    text = f"apiVersion: v1\nkind: {kind}\nitems:\n{items}"
    first, second = parse(text, "f.yaml")
    assert (first.content["kind"], second.content["kind"]) == ("A", "B")
    assert str(second) == "f.yaml, document 1, items[1]"
    assert second.line_of("spec.a") == 8


def test_what_is_only_called_a_list() -> None:
    assert read_all("apiVersion: v1\nkind: AllowList\nspec: {}\n")[0]["kind"] == "AllowList"


def test_json() -> None:
    one = {"apiVersion": "v1", "kind": "Thing", "a": [1, 2.5, None, True, "x\U0001f600/"], "y": {"yes": "no"}}
    text = json.dumps(one) + "\n" + json.dumps(one, indent=1).replace("/", "\\/")
    assert read_all(text) == [one, one]
    assert next(parse(text)).line_of("y.yes") == 1


def test_flow_mappings_are_yaml() -> None:
    assert read_all("{apiVersion: v1, kind: Thing, a: 0x10}") == [{"apiVersion": "v1", "kind": "Thing", "a": 16}]


def test_aliases_and_merges() -> None:
    text = f"{HEAD}base: &b {{x: 1, z: 2}}\na:\n  <<: *b\n  x: 3\nb:\n  <<: [*b, {{w: 4, x: 9}}]\nc: *b\n&k k: 1\n"
    text += "d: {*k : 2}\ne: [&s text, *s]\n"
    found = read_all(text)[0]
    assert found["a"] == {"x": 3, "z": 2} and found["b"] == {"x": 1, "z": 2, "w": 4}
    assert found["c"] == {"x": 1, "z": 2} and found["d"] == {"k": 2} and found["e"] == ["text", "text"]


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + HEAD.replace("\n", "\r\n").encode())
    assert read_all(file) == [{"apiVersion": "v1", "kind": "Thing"}]
    (found,) = documents("-", io.BytesIO(HEAD.encode()))
    assert str(found) == "stdin, document 1"


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_says_where_and_why(name: str) -> None:
    text, wanted = WRONG[name]
    with pytest.raises(Invalid) as error:
        list(parse(text, "f.yaml"))
    said = str(error.value)
    assert said.startswith("f.yaml, ") and wanted in said, said
    assert len(said) < 500


def test_a_tab_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="indent with blanks, not tabs"):
        read_all(WRONG["tab"][0])  # type: ignore[arg-type]


def test_json_files_have_json_errors() -> None:
    with pytest.raises(Invalid, match=r"f.json, document 1, line 2: not valid JSON: "):
        list(parse('{\n"apiVersion": v1}', "f.json"))


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_reading_is_bounded(name: str) -> None:
    def attempt() -> None:
        with pytest.raises(Invalid):
            list(parse(WRONG[name][0], "f.yaml"))

    assert peak(attempt) < 80 * 2**20


def test_a_long_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    with file.open("wb") as written:
        written.truncate(100 * 2**20)

    def attempt() -> None:
        with pytest.raises(Invalid, match=r"long.yaml: is 100 MiB long, more than 64 MiB. Hint: split it"):
            list(documents(file))

    assert peak(attempt) < 2**20


def test_stdin_is_not_read_to_an_end_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 10_000)

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"# x\n" * (len(buffer) // 4) + b"#" * (len(buffer) % 4)
            return len(buffer)

    with pytest.raises(Invalid, match="stdin: is longer than"):
        list(documents("-", io.BufferedReader(Endless())))


@pytest.mark.parametrize(("name", "why"), [("none.yaml", "No such file"), (".", "Is a directory")])
def test_files_that_cannot_be_opened(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=f"cannot be read: {why}"):
        list(documents(tmp_path / name))


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", "/dev/zero"):
        with pytest.raises(Invalid, match=f"{path}: is not a regular file. Hint: - reads stdin"):
            list(documents(path))


def test_a_pipe_that_a_shell_has_opened_is_read() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as file:
        file.write(f"{HEAD}a: 1\n")
    assert len(list(documents(f"/dev/fd/{reads}"))) == 1
    os.close(reads)


def test_documents_come_one_by_one() -> None:
    """So memory is that of one document, however many there are."""
    text = (f"{HEAD}a: {'x' * 1000}\n---\n" * 5_000).encode()

    def through() -> None:
        assert sum(1 for _ in parse(text)) == 5_000

    assert peak(through) < len(text) + 2**20


def test_tagged_refuses_what_is_no_plain_data() -> None:
    with pytest.raises(ValueError, match="!!set is not plain data"):
        yaml_scalars.tagged_value("tag:yaml.org,2002:set", "x")


word = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=20)
scalar = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), word)
tree = st.recursive(scalar, lambda below: st.lists(below) | st.dictionaries(word, below), max_leaves=20)


def whole(value: Any) -> Any:
    """As the API's reader has it: whole numbers are integers."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    fits = isinstance(value, float) and math.isfinite(value) and value.is_integer() and -(2**63) <= value < 2**63
    return int(value) if fits else value


def finite(value: Any) -> bool:
    below: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return all(map(finite, below)) and not (isinstance(value, float) and math.isinf(value))


@pytest.mark.parametrize("text", ['"<<": {x: 1}', "'<<': {x: 1}", "a: &k '<<'\n*k : {x: 1}"])
def test_a_merge_key_in_quotes_is_a_key(text: str) -> None:
    (found,) = read_all(HEAD + text)
    assert found["<<"] == {"x": 1} and "x" not in found


@settings(max_examples=60)
@given(st.dictionaries(word, tree).filter(finite))
def test_json_is_read_as_it_is(content: dict[str, Any]) -> None:
    content = {**content, "apiVersion": "v1", "kind": "Thing"}
    assert read_all(json.dumps(content)) == [content]


@settings(max_examples=60)
@given(st.dictionaries(word, tree).filter(finite))
def test_what_is_printed_as_yaml_is_read_back(content: dict[str, Any]) -> None:
    content = {**content, "apiVersion": "v1", "kind": "Thing"}
    text = json.dumps(content, ensure_ascii=False)[1:-1]  # in YAML's flow style, all keys and strings in quotes
    assert read_all("{ # as YAML\n" + text + "}") == [whole(content)]


@settings(max_examples=60)
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_nothing_but_invalid_is_raised(text: str | bytes) -> None:
    for tried in (text, HEAD.encode() + text if isinstance(text, bytes) else HEAD + text):
        try:
            for document in parse(tried):
                assert isinstance(document.line_of("spec.a[0]"), int)
        except Invalid as error:
            assert str(error)


@settings(max_examples=60)
@given(st.text(st.sampled_from("ab&*:-[]{}<!?|>'\"#%@`,\n \t~0")))
def test_nothing_but_invalid_is_raised_for_what_looks_like_yaml(text: str) -> None:
    test_nothing_but_invalid_is_raised.hypothesis.inner_test(text)  # type: ignore[attr-defined]
