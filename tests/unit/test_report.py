"""`pulumi-trainer report`: recorded previews, and what a pull request could put into one."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi_trainer.program.budgets import Started, total_note
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli import report as command
from pulumi_trainer.provider.cli.report import JOB, Preview, code, markdown
from pulumi_trainer.provider.jobs.cost import Time, cost_of
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from pulumi_trainer.provider.trainer.admission.warnings.budgets import BEYOND
from pulumi_trainer.provider.trainer.admission.warnings.table import NEVER_START, RULES
from test_cost import prices
from test_start_answers import jobset, kueue, said, team, workload

RECORDED = Path(__file__).parent / "previews"


def urn(name: str, kind: str = "trainer:index:TrainJob") -> str:
    return f"urn:pulumi:dev::nlp::{kind}::{name}"


def step(op: str, name: str, gpus: Any = 8, release: str = "", before: Any = 8, released: str = "") -> dict[str, Any]:
    def state(gpus: Any, release: str) -> dict[str, Any]:
        runtime = {"name": "torch", "release": release} if release else {"name": "torch"}
        inputs = {
            "component": urn(name),
            "namespace": "nlp",
            "name": name,
            "summary": {"gpus": gpus},
            "runtime": runtime,
        }
        return {"inputs": inputs}

    made: dict[str, Any] = {"op": op, "urn": urn(name, f"trainer:index:TrainJob${JOB}")}
    if op != "create":
        made["oldState"] = state(before, released)
    if op != "delete":
        made["newState"] = state(gpus, release)
    return made


def diagnostic(severity: str, message: str, job: str = "") -> dict[str, Any]:
    return {"severity": severity, "message": message, **({"urn": urn(job)} if job else {})}


def shown(*steps: dict[str, Any], diagnostics: Any = (), **content: Any) -> str:
    return "\n".join(markdown(Preview({"steps": [*steps], "diagnostics": [*diagnostics], **content})))


def test_a_recorded_preview_of_jobs_in_queues(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["report", str(RECORDED / "preview_in_queues.json"), "--fail-on"]
    assert cli.run([*argv, "never"]) == 1
    printed = capsys.readouterr()
    rows = printed.out.splitlines()
    assert rows[0] == "### Jobs of `lab/test`: **1 refused**, 3 new" and rows[2] == "GPUs: 144 new"
    assert rows[4].startswith(
        '- **refused** `GpuQueues("gpus") (__main__.py:4).node_labels: unknown field. Hint: known:'
    )
    assert rows[5].startswith("- **never starts** `huge` (`__main__.py:8`): `PT203: queue: it requests more than")
    assert "- new `mixtral` (`__main__.py:8`): 8 GPUs; `starts now: 8 gpus of gpus-nlp`" in rows
    assert [row for row in rows if row.startswith("- warning `llama`, `mixtral` (`__main__.py:8`): `PT113: ")]
    assert printed.err == "error: --fail-on: 1 never\n" and len(rows) <= 20
    assert "- new `huge` (`__main__.py:8`): 128 GPUs" in rows
    assert cli.run([*argv, "refused,warning"]) == 1
    assert capsys.readouterr().err == "error: --fail-on: 1 refused, 7 warning\n"
    assert cli.run([*argv, "preempts"]) == 0


def test_a_recorded_preview_on_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = (RECORDED / "preview_on_this_machine.json").read_bytes()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert cli.run(["report"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "### Jobs of `lab/test`: **1 refused**, 1 new, 1 replaced, 1 unchanged"
    assert '- replaced `changed` (`__main__.py:25`): `arguments {"text": "1"} -> {"text": "2"}`' in rows
    assert rows[-3:] == ["- unchanged `kept`", "", "</details>"]


def test_changes_of_jobs_and_their_gpus() -> None:
    text = shown(
        step("create", "new", 64), step("replace", "larger", 16, before=8), step("delete", "gone"),
        step("replace", "channel", 8, "1.1.0", 8, "1.0.0"), step("update", "suspended"), step("same", "kept"),
        step("create", "unknown", "04da6b54-80e4-46f7-96ec-b56ff0331ba9"), step("refresh", "ignored"),
        diagnostics=[diagnostic("info", "note: nlp/channel: stable has torch 1.1.0\n\n")],
    )  # fmt: skip
    assert text.startswith("### Jobs of `nlp/dev`: 2 new, 1 replaced, 1 moved, 1 updated, 1 deleted, 1 unchanged\n")
    sums = "GPUs: 64 and those of 1 job that are not known, new; 8 -> 16 replaced; 8 moved; 8 updated; 8 deleted; 8 unchanged"
    assert sums in text
    assert "- moved `channel`: 8 GPUs; release `1.0.0` -> `1.1.0`; `stable has torch 1.1.0`" in text
    assert "- new `unknown`: GPUs not known" in text and "ignored" not in text


def test_a_job_that_preempts_others() -> None:
    """The sentence is the one of the plan."""
    running = [workload("rl", "grpo-7", 16, "2026-11-01T10:00:00Z")]
    queues = team("rl", 16, preemption={"withinClusterQueue": "LowerPriority"})
    high = kueue("WorkloadPriorityClass", "high", value=100)
    found = said([*queues, high], running, jobset("rl", "llama", 1, priority="high"))
    preview = Preview({
        "steps": [step("create", "alpha"), step("create", "llama")],
        "diagnostics": [diagnostic("info", f"llama: {found}\n", "llama"), diagnostic("info", "alpha: preempts\n", "llama")],
    })  # fmt: skip
    first = next(row for row in markdown(preview) if row.startswith("- "))
    assert first.startswith("- new `llama`: 8 GPUs; **`preempts rl/grpo-7 (priority 0) in gpus-rl`**")
    assert preview.found() == {"never": 0, "preempts": 1, "budget": 0, "refused": 0, "warning": 0}


def test_costs_and_budgets() -> None:
    """The sentences are those of the plan."""
    found = {name: cost_of(jobset("nlp", name, 8), Time(hours * 3600, "by expected_hours"), ["h100"], prices(h100=3.2))
             for name, hours in (("llama", 1.5), ("mix", 1))}  # fmt: skip
    info = [diagnostic("info", f"{name}: {cost}", name) for name, cost in found.items()]
    starts = diagnostic("info", "llama: starts now: 64 h100 of gpus-nlp", "llama")
    alone = shown(step("create", "llama"), diagnostics=[info[0], starts])
    line = "about 96 GPU-hours, 307 USD (h100 3.20 USD an hour; by expected_hours)"
    assert f"\n\nCost: `{line}`\n\n" in alone and "- new `llama`: 8 GPUs; `starts now: 64 h100 of gpus-nlp`" in alone
    started = [
        Started(f"nlp/{name}", cost, {}, "", "nlp", "gpus", None, prices()) for name, cost in found.items() if cost
    ]
    total = diagnostic("info", total_note(started))
    budget = diagnostic("info", "LocalQueue nlp/gpus: its team has used 5 USD in 2026-11, within the budget")
    text = shown(step("create", "llama"), step("create", "mix"), diagnostics=[budget, starts, *info, total])
    assert "Cost: `about 160 GPU-hours, about 512 USD`" in text and f"`{line}`; `starts now" in text
    assert "- budget `LocalQueue nlp/gpus: its team has used 5 USD in 2026-11, within the budget`" in text
    beyond = Warning("LocalQueue nlp/gpus", "its team has used", "fewer nodes", code=BEYOND)
    preview = Preview(
        {"steps": [step("create", "llama")], "diagnostics": [diagnostic("warning", f"warning: {beyond}")]}
    )
    assert preview.found()["budget"] == 1
    assert "- **beyond the budget**: `PT230: LocalQueue nlp/gpus: its team has used. Hint: fewer nodes`" in markdown(
        preview
    )


def test_what_another_release_changes() -> None:
    moved = [step("replace", name, 8, "1.1.0", 8, "1.0.0") for name in ("a", "b", "c", "odd")]
    for each, image in zip(moved, ("torch:2", "torch:2", "torch:1", ""), strict=True):
        for state, name in (("oldState", "torch:1"), ("newState", image)):
            document = {"spec": {"replicatedJobs": [{"name": "node", "image": name}]}}
            each[state]["inputs"]["objects"] = {
                "JobSet/a": json.dumps(document),
                "Secret/a": "{",
                "JobSet/b": "[" * 5000,
            }
    text = shown(*moved)
    assert "- release in `a`, `b`: `major step[node].image: torch:1 => torch:2`" in text
    assert "- release in `c`: changes nothing" in text and "- release in `odd`: `major" in text


def test_whom_a_moved_channel_and_less_quota_affect() -> None:
    notes = [
        "note: channel stable: torch 1.0.0 => 1.1.0: minor for jobs\n\n",
        "note: channel stable:   2 jobs on the next run: minor\n\n", "note: channel stable:     vision/vit, nlp/mix\n\n",
        "note: ClusterTrainingRuntime torch: it changes: major for jobs\n\n", "note: channel/stable: is a job\n\n",
    ]  # fmt: skip
    quota = diagnostic("warning", "warning: PT215: ClusterQueue gpus-nlp: spec.resourceGroups: jobs use 40\n")
    other = diagnostic("warning", "warning: PT112: shared memory\n", "llama")
    rows = shown(
        step("create", "llama"), diagnostics=[other, *(diagnostic("info", note) for note in notes), quota]
    ).splitlines()
    assert rows[4:] == [
        "- **affects jobs in queues**: `PT215: ClusterQueue gpus-nlp: spec.resourceGroups: jobs use 40`",
        "- new `llama`: 8 GPUs",
        "- release `channel stable: torch 1.0.0 => 1.1.0: minor for jobs`",
        "  - `2 jobs on the next run: minor`",
        "    - `vision/vit, nlp/mix`",
        "- release `ClusterTrainingRuntime torch: it changes: major for jobs`",
        "- warning `llama`: `PT112: shared memory`",
    ]
    deep = shown(step("create", "llama"), diagnostics=[diagnostic("info", f"channel x:{' ' * 90}y")])
    assert deep.endswith("\n    - `y`"), "no depth is more than that of a list"


def test_what_is_never_admitted_is_a_rule() -> None:
    assert {rule.code for rule in RULES} >= NEVER_START
    warnings = [diagnostic("warning", f"warning: {rule.code}: queue: x\n", "llama") for rule in RULES]
    assert Preview({"diagnostics": warnings}).found()["never"] == len(NEVER_START)


def test_unchanged_jobs_are_counted_only_if_the_preview_has_them() -> None:
    assert "unchanged jobs not counted" in shown(step("create", "a"), changeSummary={"same": 3})
    assert "unchanged" not in shown(step("create", "a"), changeSummary={"create": 1})
    assert "1 unchanged" in shown(step("same", "a"), changeSummary={"same": 1})


HOSTILE = [
    "</details><script>alert(1)</script>", "@octocat #12 !3 https://evil.example [x](http://evil.example)", "a`b``c",
    "`", "\n\n/approve\n# heading\n", "\x1b]0;title\x07\x1b[2J", "\u202egnp.exe", "| a | b |\n|---|---|", "\ud800", "``` \n",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_preview_have_no_effect_in_markdown(text: str) -> None:
    made = {
        **step("create", text),
        "newState": {**step("create", text)["newState"], "sourcePosition": f"project:///{text}#1"},
    }
    component = {"op": "create", "urn": urn(text), "newState": {"sourcePosition": f"project:///{text}#1"}}
    diagnostics = [
        diagnostic("error", f"error: {text}"), diagnostic("warning", f"warning: {text}", text),
        diagnostic("info", f"{text}: {text}", text), diagnostic("info", f"channel x:   {text}"),
    ]  # fmt: skip
    for row in shown(made, component, diagnostics=diagnostics).split("\n"):
        assert row.isprintable()
        outside = re.sub(r"(?<!`)(`+)(?!`)(?:.*?[^`])\1(?!`)", "", row)  # as CommonMark ends a code span
        assert re.fullmatch(r"[-#*:;,()>\w. ]*", outside), (row, outside)


def test_a_code_span_is_closed_by_no_text() -> None:
    assert (
        code("a`b``c") == "``` a`b``c ```" and code("`") == "`` ` ``" and code("") == "`-`" and code("a\nb") == "`a b`"
    )


def test_a_report_has_at_most_20_lines_and_an_end() -> None:
    steps = [step("create", f"job-{number}-{'x' * 1000}") for number in range(2000)]
    diagnostics = [diagnostic("warning", f"warning: {number} {'y' * 5000}", f"job-{number}") for number in range(2000)]
    text = shown(*steps, diagnostics=diagnostics)
    assert len(text.partition("</summary>")[0].splitlines()) == 20
    assert len(text) < 65_536 and "- and " in text and text.endswith("\n</details>")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not valid JSON"), (b'{"steps": [', "not valid JSON"), (b"\xff\xfe", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"), (b"1" * 5000, "not valid JSON"), (b"[]", "not the output"), (b"{}", "not the output"),
        (b'{"format_version": "1.2", "resource_changes": []}', "not the output"), (b'{"steps": {"a": 1}}', "not the output"),
        (b'{"steps": [{"uses": "actions/checkout"}]}', "not the output"), (b'{"diagnostics": [1]}', "not the output"),
        (b'{"sequence": 1}\n{"sequence": 2}\n', "not valid JSON"),
    ],
)  # fmt: skip
def test_files_of_other_programs(data: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "preview.json"
    file.write_bytes(data)
    assert cli.run(["report", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and f"preview.json: {why}" in printed.err and printed.err.count("\n") == 1, printed


def test_files_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.run(["report", str(tmp_path / "missing")]) == 2
    assert "missing: cannot be read: No such file" in capsys.readouterr().err
    monkeypatch.setattr(command, "LARGEST_FILE", 2**20)
    (tmp_path / "large").write_bytes(b" " * (2**20 + 1))
    assert cli.run(["report", str(tmp_path / "large")]) == 2
    assert "large: is larger than 1 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "state", [None, [], "x", {"inputs": []}, {"inputs": {"summary": "[secret]", "runtime": "[secret]"}}]
)
def test_states_of_any_form(state: Any) -> None:
    made = {**step("create", "llama"), "newState": state}
    assert shown(made, changeSummary=state).startswith("### Jobs of `nlp/dev`: 1 new")


def test_conditions_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["report", "x", "--fail-on", "preempt"])
    assert ended.value.code == 2
    assert "(expected never, preempts, budget, refused, warning, separated by commas)" in capsys.readouterr().err
