"""Every command gets a hostile text in every field that it prints: no terminal acts on it, and no line is forged.

A command that is added has to be added to `COMMANDS` as well; text is printed and logged in two modules alone.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import json
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents_support import runtime, train_job
from pulumi_trainer.program import messages
from pulumi_trainer.provider.cli import (
    cache,
    commands,
    completion,
    convert,
    deploy,
    doctor,
    documents,
    exporter,
    formats,
    import_cluster,
    job_status,
    logs,
    new_project,
    operations,
    outputs,
    policy,
    queue_usage,
    rbac,
    releases,
    report,
    runs,
    runtime_impact,
    runtime_table,
    script_run,
    trust,
    usage,
    version,
)
from pulumi_trainer.provider.cli import events as event_command
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kueue.occupancy import Occupancy
from pulumi_trainer.provider.kueue.prices import Amount, read_price
from pulumi_trainer.provider.lifecycle.events import JobEvent
from pulumi_trainer.provider.lifecycle.ownership import Finding
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage
from pulumi_trainer.provider.lifecycle.usage_sums import Ran
from pulumi_trainer.provider.service import jobs, reach, stack
from pulumi_trainer.provider.service.logs import Selection, print_note
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.trust import kubeconfig_check
from pulumi_trainer.provider.targets.kubernetes.observe import importable, job_metrics, job_starts, job_usage, listing
from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot
from pulumi_trainer.provider.trainer.admission.warnings import Severities
from pulumi_trainer.provider.trainer.catalog import registry
from pulumi_trainer.provider.trainer.labels import RELEASE
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.provider.trainer.runtime_releases import Effect
from test_control_characters import HOSTILE, acted_on

ROOT = Path(__file__).parents[2]
FORGED = "error: forged"


def filled(type_: Any, depth: int = 0) -> Any:
    """A value of a type with a hostile text wherever it has a text."""
    origin, inner = typing.get_origin(type_), typing.get_args(type_)
    if type_ in (str, Any):
        return HOSTILE
    if type_ in (int, float, Fraction):
        return type_(1)
    if type_ is bool:
        return True
    if type_ is Path:
        return Path(HOSTILE[:-1])
    if origin in (typing.Union, types.UnionType):
        return filled(inner[0], depth)
    if origin is typing.Literal:
        return inner[0]
    if origin in (list, Sequence, Collection):
        return [filled(inner[0], depth + 1)] if depth < 4 else []
    if origin is tuple:
        return tuple(filled(each, depth + 1) for each in inner if each is not ...)
    if origin is set:
        return {filled(inner[0], depth + 1)}
    if origin in (dict, Mapping):
        return {HOSTILE: filled(inner[1], depth + 1)}
    if type_ is Amount:  # its unit is one that is known
        return read_price("3 USD")
    assert dataclasses.is_dataclass(type_), type_
    hints = typing.get_type_hints(type_)
    return type_(**{f.name: filled(hints[f.name], depth + 1) for f in dataclasses.fields(type_) if f.init})


class Machine:
    """A target of this machine whose records and files are somebody's."""

    root = Path("x")

    def __init__(self) -> None:
        attempts = [dataclasses.replace(filled(Attempt), number=number, count=1) for number in (1, 2)]
        self.found = dataclasses.replace(filled(JobStatus), attempts=attempts, phase=Phase.FAILED.value)

    @property
    def jobs(self) -> Machine:
        return self

    volumes = logs = jobs

    def status(self, *_: object) -> JobStatus:
        return self.found

    cached_status = status

    def is_suspended(self, *_: object) -> bool:
        return False

    def output(self, _path: str) -> Any:
        return filled(Output)

    def runs(self, *_: object) -> list[Run]:
        return [filled(Run), dataclasses.replace(filled(Run), inputs={HOSTILE: "2"})]

    def dropped(self, *_: object) -> list[tuple[str, int]]:
        return [(HOSTILE, 1)]

    def tail(self, *_: object, **__: object) -> list[tuple[str, str, str]]:
        return [(HOSTILE, HOSTILE, HOSTILE)]

    def usage(self, *_: object) -> list[Ran]:
        return [filled(Ran)]


@pytest.fixture
def somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A job of this machine, chosen by each command, in an empty folder."""
    job = ReachedJob(HOSTILE, HOSTILE, HOSTILE, local=Machine(), owner=Owner("mine", "mine"))  # type: ignore[arg-type]
    for module in (jobs, job_status, logs, runs, outputs):
        monkeypatch.setattr(module, "chosen_jobs", lambda *_, **__: [job])
    monkeypatch.setattr(outputs, "of_stack", lambda *_: True)
    monkeypatch.setattr(stack, "jobs", lambda *_, **__: [job])
    monkeypatch.setattr(operations, "find_job", lambda *_: job)
    monkeypatch.setattr(operations, "apply", lambda *_: filled(JobStatus))
    for module in (queue_usage, exporter):
        monkeypatch.setattr(module, "in_cluster_of_stack", lambda where: where)
        monkeypatch.setattr(module, "open_cluster", lambda *_: (types.SimpleNamespace(), HOSTILE))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


Patch = pytest.MonkeyPatch
WHERE = Where(HOSTILE, HOSTILE)


def _events(patch: Patch, output: str) -> None:
    client: Any = types.SimpleNamespace()
    patch.setattr(event_command, "chosen_jobs", lambda *_: [ReachedJob(HOSTILE, HOSTILE, client=client)])
    patch.setattr(event_command, "check_own", lambda *_: None)
    for found in ([filled(JobEvent), dataclasses.replace(filled(JobEvent), last=10**6)], []):
        patch.setattr(listing, "list_events", lambda *_, found=found: found)
        event_command.events("x", WHERE, output=output)


def test_queues_are_watched_until_the_user_interrupts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list[str]()

    def read(*_: Any) -> None:
        shown.append("")
        if len(shown) == 2:
            raise TargetFault(Problem("", "no route"))

    def sleep(_: float) -> None:
        if len(shown) == 3:
            raise KeyboardInterrupt

    client = types.SimpleNamespace(patience=1.0, within=lambda _: client)
    monkeypatch.setattr(queue_usage, "open_cluster", lambda _: (client, "team"))
    monkeypatch.setattr(queue_usage, "in_cluster_of_stack", lambda where: where)
    monkeypatch.setattr(queue_usage, "_print_queues", read)
    monkeypatch.setattr(queue_usage.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        queue_usage.queues(Where(everywhere=True), output="table", watch=True)
    printed = capsys.readouterr().out
    assert printed.count("UTC, every 5 s") == 3 and "no route" in printed


def _queues(patch: Patch, output: str) -> None:
    patch.setattr(queue_snapshot, "overview", lambda *_: ([], []))
    patch.setattr(job_starts, "read_starts", lambda *_: {f"{HOSTILE}/{HOSTILE}": HOSTILE})
    found = filled(Occupancy)
    cohorts = [dataclasses.replace(each, parent="") for each in found.cohorts]
    found = dataclasses.replace(found, unseen=["workloads"], cohorts=cohorts)
    patch.setattr(queue_usage, "occupancy", lambda *_: found)
    queue_usage.queues(Where(everywhere=True), output=output)
    patch.setattr(queue_usage, "occupancy", lambda *_: Occupancy())
    queue_usage.queues(Where(), output=output)


def _usage(patch: Patch, output: str) -> None:
    patch.setattr(usage, "of_stack", lambda *_: True)
    for by in ("team", "queue", "user", "job"):
        usage.usage([WHERE], window=(time.time() - 3600, time.time()), by=by, output=output)
    usage.usage([WHERE], window=(time.time() - 3600, time.time()), by="job", output="csv")


def _doctor(patch: Patch, output: str) -> None:
    patch.setattr(stack, "read_state", lambda *_: stack.State(HOSTILE, [], ""))
    patch.setattr(stack, "configured", lambda *_: {})
    patch.setattr(doctor, "_places", lambda *_: {})
    for found in ([filled(Finding)], []):
        patch.setattr(doctor, "compare", lambda *_, found=found: found)
        doctor.doctor(WHERE, output=output)
    doctor._print([], HOSTILE, [(HOSTILE, HOSTILE)], 0, 1)


def _cache(patch: Patch, output: str) -> None:
    patch.setattr(cache, "_entries", lambda: iter([filled(cache.Entry)]))
    cache.list_all(output)


def _prune(patch: Patch, _: str) -> None:
    entries = [filled(cache.Entry), dataclasses.replace(filled(cache.Entry), kept="")]
    patch.setattr(cache, "_entries", lambda: iter(entries))
    patch.setattr(cache, "_remove", lambda *_: True)
    cache.prune(0.0, dry_run=False, yes=True)
    cache.prune(0.0, dry_run=True, yes=True)


def _exporter(patch: Patch, _: str) -> None:
    source: Any = types.SimpleNamespace(readable=lambda: [(HOSTILE, False)], stop=lambda: None)
    source.start = lambda: source
    nothing: Any = types.SimpleNamespace(
        server_address=("", 1),
        shutdown=lambda: None,
        join=lambda: None,
        within=lambda *_: nothing,
        cluster_id=lambda: "",
    )
    patch.setattr(exporter, "open_cluster", lambda *_: (nothing, HOSTILE))
    patch.setattr(job_usage, "read_usage", lambda *_: filled(ClusterUsage))
    patch.setattr(job_metrics, "JobMetrics", lambda *_: source)
    patch.setattr("prometheus_client.start_http_server", lambda *_: (nothing, nothing))
    patch.setattr("signal.signal", lambda *_: None)
    patch.setattr(threading.Event, "wait", lambda *_: True)
    exporter.exporter(Where(namespace=HOSTILE), port=1, address=HOSTILE)


def _init(patch: Patch, _: str) -> None:
    patch.setattr(new_project, "_write", lambda *_: None)
    new_project.init(Path(HOSTILE[:-1]), "quickstart")


def _convert(patch: Patch, _: str) -> None:
    objects = [{"title": HOSTILE, "notes": [HOSTILE], "differences": [HOSTILE]}]
    patch.setattr(convert, "_read", lambda _: [])
    patch.setattr(convert, "run_converter", lambda *_: {"files": {}, "objects": objects, "refused": [HOSTILE]})
    patch.setattr(convert, "write_files", lambda *_, **__: None)
    convert.convert([HOSTILE], Path(HOSTILE[:-1]), force=False)


def _import(patch: Patch, _: str) -> None:
    objects = [{"title": f"x: {HOSTILE}", "notes": [HOSTILE], "differences": []}]
    answer = {"files": {"__main__.py": ""}, "objects": objects, "refused": [HOSTILE]}
    found = importable.Importable(left={HOSTILE: HOSTILE}, unread=[HOSTILE])
    patch.setattr(importable, "read_importable", lambda *_: found)
    patch.setattr(import_cluster, "open_cluster", lambda *_: (types.SimpleNamespace(), HOSTILE))
    patch.setattr(import_cluster, "run_converter", lambda *_: answer)
    patch.setattr(import_cluster, "write_files", lambda *_, **__: None)
    import_cluster.import_cluster(WHERE, [], Path(HOSTILE[:-1]))


def _status(_: Patch, output: str) -> None:
    job_status.status("x", WHERE, output=output)
    job_status.history("x", WHERE, output=output)


def _outputs(patch: Patch, output: str) -> None:
    outputs.outputs("x", WHERE, output=output)
    patch.setattr(outputs, "_archive", lambda *_: _context())
    patch.setattr("pulumi_trainer.provider.cli.destinations.open_destination", lambda *_, **__: _context())
    copied: Any = types.SimpleNamespace(notes=[HOSTILE], files=[HOSTILE], size=1, to_dict=lambda: {HOSTILE: HOSTILE})
    patch.setattr("pulumi_trainer.provider.cli.output_copy.receive", lambda *_: copied)
    patch.setattr("pulumi_trainer.provider.cli.output_copy.record_name", lambda *_: HOSTILE)
    outputs.outputs("x", WHERE, output=output, copying=outputs.Copying(HOSTILE))


class _context:  # noqa: N801
    def __enter__(self) -> _context:
        return self

    def __exit__(self, *_: object) -> None: ...

    def finish(self, *_: object) -> None: ...


def _files(text: Any = HOSTILE[:-1]) -> list[str]:
    """A runtime and a job with texts of somebody wherever a document may have any."""
    made, job = runtime(), train_job({"name": text, "labels": {text: text}, "annotations": {text: text}})
    made["metadata"] |= {"labels": {text: text, "trainer.kubeflow.org/support": f"deprecated{text}"}}
    pod = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0] |= {"image": text, "command": [text], "env": [{"name": text, "value": text}], text: text}
    job["spec"] |= {text: text, "managedBy": text, "trainer": {"image": text, "env": [{"name": "A", "value": text}]}}
    other = {**runtime(), "metadata": {"name": text}}
    found = []
    for number, each in enumerate(
        ([made, train_job(), job, other], [runtime(), train_job(), train_job({"name": text})])
    ):
        Path(f"{number}.yaml").write_text(yaml.safe_dump_all(each))
        found.append(f"{number}.yaml")
    return found


def _validate(_: Patch, output: str) -> None:
    for file in _files():
        for mode in ("jobset", "trainer"):
            documents.validate([file], mode, DEFAULT, {"table": "text"}.get(output, output), Severities.of())  # type: ignore[arg-type]
    Path("a").mkdir(exist_ok=True)
    Path("0.yaml").rename("a/input.yaml")
    documents.batch(Path(), "jobset", DEFAULT)


def _render(patch: Patch, output: str) -> None:
    for file in _files():
        documents.render([file], "trainer", DEFAULT, {"table": "yaml"}.get(output, output), Severities.of())
    documents.print_objects([{HOSTILE[:-1]: HOSTILE[:-1]}], {"table": "yaml"}.get(output, output))


def _diff(patch: Patch, output: str) -> None:
    """With the effects of two releases whose images, commands, labels and variables are somebody's."""
    for number in (1, 2):
        made = runtime()
        pod = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        text = f"{number}{HOSTILE[:-1]}"
        pod["containers"][0] |= {"image": text, "command": [text], "env": [{"name": "A", "value": text}]}
        Path(f"{number}.yaml").write_text(yaml.safe_dump(made))
    releases.diff("1.yaml", "2.yaml", "", output, DEFAULT)
    patch.setattr(releases, "review", lambda *_: types.SimpleNamespace(errors=[]))
    patch.setattr(releases, "compare", lambda *_: [filled(Effect)])
    patch.setattr(releases, "_find", lambda *_: {"metadata": {"labels": {HOSTILE: HOSTILE}}})
    releases.diff(HOSTILE, HOSTILE, "", output, DEFAULT)


def _check(patch: Patch, output: str) -> None:
    step = {"from": HOSTILE, "to": HOSTILE, "runtime": HOSTILE, "level": HOSTILE, "locked": False, "effects": [HOSTILE]}
    problem = Problem(HOSTILE, HOSTILE, HOSTILE)
    patch.setattr(releases, "_checked", lambda *_: ([problem], [step]))
    patch.setattr(releases, "_moving_images", lambda *_: [problem])
    patch.setattr(releases.RuntimeCatalog, "from_dir", lambda *_: types.SimpleNamespace())
    releases.check(HOSTILE, output, DEFAULT, lock=False)


def _release(patch: Patch, _: str) -> None:
    document = {"metadata": {"name": "a", "labels": {}}, "spec": {}}
    patch.setattr(releases, "_find", lambda *_: document)
    patch.setattr(releases, "_write_release", lambda *_: None)
    patch.setattr(releases, "_names", lambda *_: ["a"])
    known = types.SimpleNamespace(releases=lambda *_: ["0.9.0"], withdrawal=lambda *_: None)
    patch.setattr(releases.RuntimeCatalog, "from_dir", lambda *_: known)
    releases.new("a@1.0.0", "", HOSTILE[:-1], DEFAULT)
    patch.setattr(releases, "_images", lambda *_: [({}, f"image{HOSTILE}")])
    patch.setattr(releases, "parse_image", lambda *_: types.SimpleNamespace(digest=""))
    patch.setattr(registry, "find_digest", lambda *_: HOSTILE)
    releases.pin(HOSTILE, HOSTILE[:-1], DEFAULT)


def _impact(patch: Patch, output: str) -> None:
    """With the jobs and the releases of others."""
    jobs = [
        dataclasses.replace(filled(Consumer), release=HOSTILE, channel=channel, jobset=None)
        for channel in ("", HOSTILE)
    ]
    patch.setattr(runtime_impact, "_consumers", lambda *_: (jobs, {}))
    patch.setattr(runtime_impact, "valid_runtime", lambda *_: {"metadata": {"labels": {RELEASE: HOSTILE}}})
    patch.setattr(runtime_impact, "compare", lambda *_: [filled(Effect)])
    for form in (output, "markdown"):
        runtime_impact.impact(HOSTILE, HOSTILE, WHERE, "", form, DEFAULT)
        if output != "table":
            break


def _table(patch: Patch, output: str) -> None:
    entry = {"releases": [HOSTILE], "deprecated": [HOSTILE], "devices": [HOSTILE], "gpusPerNode": 1}
    patch.setattr(runtime_table, "list_runtimes", lambda _: [{**dict.fromkeys(
        ("name", "newest", "framework", "nodes", "purpose"), HOSTILE), **entry}])  # fmt: skip
    patch.setattr(runtime_table, "_devices", lambda *_: HOSTILE)
    runtime_table.print_all(output)


def _trust(patch: Patch, _: str) -> None:
    patch.setenv("HOME", str(Path.cwd()))
    file, user = Path(HOSTILE[:-1].replace("/", "")), {"exec": {"command": HOSTILE, "args": [HOSTILE]}}
    file.write_text(yaml.safe_dump({"users": [{"name": "x", "user": user}]}))
    trust.trust(file)
    assert Path(".config/pulumi-trainer/trusted.json").is_file()
    file.write_text(f"{file.read_text()}a: b\n")
    kubeconfig_check(".")(str(file))
    raise AssertionError("it has changed")


def _rbac(_: Patch, __: str) -> None:
    with pytest.raises(TrainerError) as raised:
        rbac.print_roles(rbac.platform_roles(), [HOSTILE], [])
    reach.show_warning(raised.value.problems[0])
    rbac.explain_roles(rbac.platform_roles())


def _deploy(_: Patch, __: str) -> None:
    with pytest.raises(TrainerError) as raised:
        deploy.print_exporter(HOSTILE, HOSTILE, monitored=True)
    for problem in raised.value.problems:
        reach.show_warning(problem)
    deploy.print_exporter("monitoring", "a", monitored=True)


def _deploy_doctor(_: Patch, __: str) -> None:
    with pytest.raises(TrainerError) as raised:
        deploy.print_doctor(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, monitored=True)
    for problem in raised.value.problems:
        reach.show_warning(problem)
    deploy.print_doctor("monitoring", "a", "organization/a/b", "s3://a", "b", monitored=True)


def _policy(_: Patch, __: str) -> None:
    typed = HOSTILE[:-1]  # no file has a lone surrogate
    for content in (f"checkpoints: [{json.dumps('//' + typed)}]", f"{json.dumps(typed)}: 1"):
        with pytest.raises(TrainerError) as raised:
            policy.print_policies(_rules(content), "a", [])
        reach.show_warning(raised.value.problems[0])
    for file, name in ((typed, "a"), ("policy.yaml", HOSTILE)):
        with pytest.raises(TrainerError) as raised:
            policy.print_policies(file, name, [HOSTILE] if name == HOSTILE else [])
        for problem in raised.value.problems:
            reach.show_warning(problem)
    policy.print_policies(_rules(f"runtimes: [a]\nregistries: [{json.dumps('a' + typed + 'b')}]"), "a", ["b"])


def _pack(_: Patch, __: str) -> None:
    with pytest.raises(TrainerError) as raised:
        policy.write_pack(_rules("queue: true"), f"/dev/null/{HOSTILE[:-1]}")
    reach.show_warning(raised.value.problems[0])


def _rules(content: str) -> str:
    file = Path("policy.yaml")
    file.write_text(content)
    return str(file)


def _operation(name: Any) -> Callable[[Patch, str], None]:
    return lambda *_: operations.operate(name, HOSTILE, WHERE)


def _logs(patch: Patch, output: str) -> None:
    patch.setattr(sys.stdout, "isatty", lambda: True)
    patch.setenv("NO_COLOR", "1")
    logs.logs("x", WHERE, Selection(), output={"table": "text"}.get(output, "json"))
    print_note(HOSTILE)


def _run(patch: Patch, _: str) -> None:
    """What prints a job's end, the Pulumi CLI and the program."""
    patch.setattr(sys.stdout, "isatty", lambda: True)
    patch.setenv("NO_COLOR", "1")
    file = Path(HOSTILE[:-1].replace("/", ""))
    file.write_text("")
    machine = Machine()
    job = ReachedJob(HOSTILE, HOSTILE, local=machine)  # type: ignore[arg-type]
    patch.setattr(script_run.TemporaryStack, "up", lambda _: None)
    patch.setattr(script_run.TemporaryStack, "create", lambda *_: None)
    patch.setattr(script_run.TemporaryStack, "destroy", lambda _: None)
    found = types.SimpleNamespace(where=HOSTILE, output=filled(Output))
    patch.setattr(script_run, "find_output", lambda *_: found)
    script = script_run.Script(file, arguments=(HOSTILE,), runtime=HOSTILE)
    code = script_run._run_in(script_run.TemporaryStack("x"), {HOSTILE: HOSTILE}, job, script, HOSTILE, "")
    assert code == 1
    with pytest.raises(TrainerError) as raised:
        script_run.Script(Path(HOSTILE[:-1])).check()
    raise raised.value


def _report(patch: Patch, output: str) -> None:
    step = {"op": "create", "urn": f"urn:pulumi:{HOSTILE}::{HOSTILE}::trainer:index:TrainJob${report.JOB}::{HOSTILE}"}
    found = [{"severity": each, "message": HOSTILE, "urn": HOSTILE} for each in ("error", "warning", "info")]
    data = json.dumps({"steps": [step], "diagnostics": found}).encode()
    patch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))
    assert report.report(Path("-"), ["refused"]) == 1
    report.report(Path(HOSTILE), [])


COMMANDS: dict[str, Callable[[Patch, str], None]] = {
    "status": _status,
    "why": lambda _, output: job_status.why("x", WHERE, output=output),
    "runs": lambda _, output: runs.runs("x", WHERE, output=output),
    "outputs": _outputs,
    "run": _run, "logs": _logs, "events": _events, "queues": _queues, "usage": _usage, "doctor": _doctor, "exporter": _exporter,
    "trust": _trust, "cache list": _cache, "cache prune": _prune, "init": _init, "convert": _convert,
    "import": _import,
    **{name: _operation(name) for name in ("suspend", "resume", "stop", "rerun")},
    "validate": _validate, "render": _render, "rbac": _rbac, "runtime list": _table, "runtime new": _release,
    "completion": lambda *_: completion.print_script("bash"),
    "version": lambda _, output: version.show(output), "report": _report,
    "deploy exporter": _deploy, "deploy doctor": _deploy_doctor,
    "policy render": _policy, "policy pack": _pack,
    "runtime pin": _release, "runtime check": _check, "runtime diff": _diff,
    "runtime impact": _impact,
}  # fmt: skip


def test_all_commands_are_here() -> None:
    assert set(COMMANDS) == set(commands.COMMANDS)


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(somewhere: Patch, capsys: pytest.CaptureFixture[str], command: str, output: str) -> None:
    try:
        COMMANDS[command](somewhere, output)
    except TrainerError as error:
        reach.show_warning(error.problems[0])
    out, err = capsys.readouterr()
    assert out + err and not acted_on(out + err), out + err
    assert not [line for line in (out + err).splitlines() if line.startswith(FORGED)], out + err


CONTAINERS = {"pod", "generate"}
"""Folders of programs of containers, whose output is a log, and of those that developers run."""
PRINTS = ("terminal", "messages", "supervisor", "remote", "isolation", "pulumi_compat")
"""The two modules, what prints into logs of jobs, and what the first imports of a program raise."""


def test_text_becomes_a_line_in_one_place() -> None:
    """`terminal` for the command line, `messages` for Pulumi: each makes text of others harmless."""
    found = []
    for folder in ("provider", "components"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            is_program = CONTAINERS & set(path.parts)
            if path.stem in PRINTS or is_program:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name in ("print", "pulumi.RunError", "sys.stderr.write") or name.startswith("pulumi.log."):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert found == []


def test_what_components_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the annotation of a job that names the stack which has adopted it."""
    logged = []
    for name in ("warn", "info", "error"):
        monkeypatch.setattr(messages.pulumi.log, name, lambda text, *_, **__: logged.append(text))
    text = f"TrainJob(a): {Owner('', '', HOSTILE).adopted_from(Owner('mine'))}"
    for log in (messages.warn, messages.info, messages.error):
        log(text)
    logged.append(str(messages.failure(text)))
    assert len(logged) == 4
    for each in logged:
        assert not acted_on(each) and not [line for line in each.splitlines() if line.startswith(FORGED)]


def test_csv_has_a_row_a_line(somewhere: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    somewhere.setattr(usage, "of_stack", lambda *_: True)
    usage.usage([WHERE], window=(time.time() - 3600, time.time()), by="job", output="csv")
    assert [len(row) for row in csv.reader(io.StringIO(capsys.readouterr().out))] == [8]


def test_json_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    formats.print_data({HOSTILE: "\x7f"}, "json")
    out = capsys.readouterr().out
    assert json.loads(out) == {HOSTILE: "\x7f"} and not acted_on(out)
