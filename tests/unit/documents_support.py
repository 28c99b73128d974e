"""Documents for tests: some that are right, and texts that cannot be read."""

from __future__ import annotations

from typing import Any

HEAD = "apiVersion: v1\nkind: Thing\n"

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
)
WRONG: dict[str, tuple[str | bytes, str]] = {
    "duplicate": (f"{HEAD}spec:\n  a: 1\n  b:\n  - {{x: 1, x: 2}}\n", "line 6: spec.b[0]: duplicate key x"),
    "duplicate at the top": (f"{HEAD}kind: A\n", "line 3: duplicate key kind"),
    "bomb": (HEAD + BOMB, "line 8: a5[1]: holds more than 200000 values, aliases written out"),
    "long bomb": (f"{HEAD}a: &a {'x' * 10**6}\nb: [*a, *a, *a]\n", "line 4: b[2]: is longer than 3 MiB"),
    "many aliases": (f"{HEAD}a: &a x\nb: [{'*a,' * 200_001}]\n", "line 4: b[199991]: holds more than 200000 values"),
    "long keys": (
        f"{HEAD}? &k {'k' * 10**6}\n: 1\na: [{{*k : 1}}, {{*k : 1}}, {{*k : 1}}, {{*k : 1}}]\n",
        "line 5: a[2]: is longer than 3 MiB",
    ),
    "cycle": (f"{HEAD}a: &a [*a]\n", "line 3: a[0]: an alias refers to itself: it is inside its anchor"),
    "cycle of mappings": (f"{HEAD}a: &a\n  b: *a\n", "line 4: a.b: an alias refers to itself: it is inside its anchor"),
    "deep aliases": (
        HEAD + "a0: &a0 x\n" + "".join(f"a{i}: &a{i} {'[' * 60}*a{i - 1}{']' * 60}\n" for i in range(1, 50)),
        "is nested more than 100 levels deep",
    ),
    "no anchor": (
        f"{HEAD}a: *b\n",
        "line 3: not valid YAML: found undefined alias. Hint: quote a text that begins with *",
    ),
    "alias as key": (f"{HEAD}a: &a [1]\nb: {{*a : 1}}\n", "line 4: b: a key is a mapping or a list"),
    "deep flow": (HEAD + "a: " + "[" * 10_000 + "]" * 10_000, "line 3: a[0][0]"),
    "deep blocks": (HEAD + "".join(" " * i + "a:\n" for i in range(1_500)), "is nested more than 100 levels deep"),
    "many values": (HEAD + "a:\n" + "- a\n" * 200_000, "holds more than 200000 values"),
    "one long": (HEAD + "a: " + "x" * (3 * 2**20), "is longer than 3 MiB, the most that an API server accepts"),
    "one long of many lines": (HEAD + "# a comment\n" * 280_000, "the document from line 1 on: is longer than 3 MiB"),
    "NUL": (b"apiVersion: v1\nkind: \0\n", "line 2: holds a NUL byte"),
    "control character": (b"apiVersion: v1\nkind: \x07\n", "the character U+0007 is not allowed"),
    "UTF-8": (b"apiVersion: v1\nkind: \xff\n", "line 2: the byte 0xff is not UTF-8. Hint: save the file as UTF-8"),
    "UTF-16": (HEAD.encode("utf-16"), "line 1: the byte 0xff is not UTF-8"),
    "tab": (f"{HEAD}spec:\n\ta: 1\n", "line 4: not valid YAML: while scanning for the next token"),
    "not closed": (f"{HEAD}spec: [1, 2\n", "not valid YAML: while parsing a flow sequence"),
    "key on": (f"{HEAD}a: {{on: 1}}\n", 'line 3: a: the key on is not a string. Hint: write it in quotes: "on"'),
    "key 1.10": (f"{HEAD}a: {{1.10: 1}}\n", 'write it in quotes: "1.10"'),
    "key 0x10": (f"{HEAD}a: {{0x10: 1}}\n", 'write it in quotes: "0x10"'),
    "key null": (f"{HEAD}a: {{~: 1}}\n", "the key ~ is not a string"),
    "empty key": (f"{HEAD}a: {{? : 1}}\n", "the key null is not a string"),
    "key of a list": (f"{HEAD}a: {{? [b] : 1}}\n", "line 3: a: a key is a mapping or a list"),
    "merge of a scalar": (f"{HEAD}a: {{<<: 1}}\n", "<< takes a mapping, or a list of them"),
    "not a number": (f"{HEAD}a: .nan\n", 'a: .nan is not a number that JSON has. Hint: write it in quotes: ".nan"'),
    "tag": (
        f"{HEAD}a: !!python/object/apply:os.system [x]\n",
        "the tag !!python/object/apply:os.system is not plain data",
    ),
    "tag of a scalar": (f"{HEAD}a: !!binary eA==\n", "the tag !!binary is not plain data"),
    "tag that lies": (f"{HEAD}a: !!int x\n", "'x' is not what its tag !!int says"),
    "tag int of a bool": (f"{HEAD}a: !!int yes\n", "'yes' is not what its tag !!int says"),
    "list": (
        "- a\n",
        "document 1, line 1: holds a list, not an object of the API. Hint: begin it with apiVersion and kind",
    ),
    "text": ("hello\n", "holds text, not an object"),
    "second": (f"{HEAD}metadata: {{name: a}}\n---\nkind: A\n", "document 2, line 4: has no apiVersion"),
    "neither": ("a: 1\n", "has no apiVersion and no kind"),
    "kind yes": ("apiVersion: v1\nkind: yes\n", "kind: must be a string, not True. Hint: write it in quotes"),
    "items": ("apiVersion: v1\nkind: List\nitems: 1\n", "items: must be a list"),
    "item": (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- 3\n",
        "items[1], line 5: holds a number, not an object of the API",
    ),
    "JSON duplicate": ('{"apiVersion": "v1", "kind": "A", "a": {"b": 1, "b": 1}}', "duplicate key b"),
    "JSON depth": ('{"apiVersion": "v1", "a": ' + "[" * 100_000, "is nested more than 100 levels deep"),
    "JSON levels": ('{"apiVersion": "v1", "a": ' + "[" * 200 + "]" * 200 + "}", "is nested more than 100 levels deep"),
    "JSON values": ('{"a": [' + "1," * 200_000 + "1]}", "holds more than 200000 values"),
    "JSON number": ('{"a": ' + "9" * 5_000 + "}", "holds a number that is too long"),
    "JSON half": (r'{"apiVersion": "v1", "kind": "A", "a": "\ud83d"}', "holds half of a character"),
    "JSON constant": ('{"a": NaN}', "NaN is not a number that JSON has"),
}
"""Name -> text, and what is said about it."""


def runtime(nodes: int = 1, kind: str = "ClusterTrainingRuntime", **spec: Any) -> dict[str, Any]:
    container = {"name": "node", "image": "img:1"}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": "rt"},
        "spec": {"mlPolicy": {"numNodes": nodes, "torch": {}}, "template": template, **spec},
    }  # fmt: skip


def train_job(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "team", **(metadata or {})},
        "spec": {"runtimeRef": {"name": "rt"}, **spec},
    }  # fmt: skip


def thing(kind: str, name: str = "job", version: str = "v1", **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "team"}, **rest}
