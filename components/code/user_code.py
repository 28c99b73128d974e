"""User code as files: a ConfigMap with a function or a script, started by a small bootstrap without a shell.

Parts that cannot travel with a function (a global, a closure, a decorator) are problems with name and line.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import to_document
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.fine_tuning import ToolTrainer, table
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.project import Source
from pulumi_trainer.args.trainers import CustomTrainer, Trainer
from pulumi_trainer.code.compiled import Code, Compiled
from pulumi_trainer.code.entry_source import _POSTPONED, _WAITING, Shipped, from_function, read_entry
from pulumi_trainer.code.project_code import Project, read_project
from pulumi_trainer.code.requirements import invalid_requirement, read_requirements, required_path, source_warnings
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import listed, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline import registry

PYTHON = "python3"

LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torchrun",),
    "paddle": (PYTHON, "-m", "paddle.distributed.launch"),
}
"""Framework (label `trainer.kubeflow.org/framework` of the runtime) -> command that starts the script; default: Python. A plugin
sets its own in `launcher`.
"""

MPIRUN = ("mpirun", "--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile")
"""mpirun refuses to run as root without the flag, and an image may use root. The Kubeflow SDK uses the same hostfile."""

ACROSS: Mapping[str, tuple[str, ...]] = {"mpi": MPIRUN, "deepspeed": MPIRUN, "mlx": MPIRUN}
"""Framework -> command that starts the script's launcher in each slot of each node; it runs in the trainer step alone."""


def compile_trainer(trainer: Trainer | BuiltinTrainer, runtime: Mapping[str, Any], dataset: Any) -> Compiled:
    """Return the document of a trainer, and the code that travels with the job."""
    if isinstance(trainer, BuiltinTrainer):
        return Compiled(trainer.train_job_field(dataset), problems=tuple(trainer.runtime_problems(runtime)))
    compiled = Compiled(trainer.document())
    if isinstance(trainer, ToolTrainer):
        return _compile_tool(trainer, compiled, runtime)
    if not isinstance(trainer, CustomTrainer) or not trainer.ships_code:
        return compiled
    func_args, wrong = json_value(trainer.func_args, "func_args")
    if trainer.func is not None and func_args is None:
        func_args = {}
    problems: list[Problem] = [*wrong]
    project, requirements = _read_files(trainer, problems)
    doubts: tuple[Problem, ...] = ()
    if trainer.requirements and requirements is not None:
        doubts = source_warnings(trainer.requirements, project)
    shipped = Shipped("")
    source_is_refused = project is None and trainer.source is not None
    if not source_is_refused:
        shipped = read_entry(trainer, project)
    packages, urls = to_document(trainer.packages_to_install), to_document(trainer.pip_index_urls)
    document = {**compiled.document, "command": command()}
    if trainer.command is not None:  # in args, where Kubernetes replaces $(VARIABLE)
        document["args"] = [*to_document(trainer.command), *(to_document(trainer.args) or [])]
    compiled = Compiled(
        document,
        Code(
            shipped.script, func_args, packages, urls, framework(runtime), entry=shipped.entry, requirements=requirements
        ),
        (*shipped.problems, *problems),
        (*shipped.warnings, *doubts),
        exact=shipped.exact,
        line=shipped.line,
        file=shipped.file,
        training=shipped.training,
    )  # fmt: skip
    if not shipped.problems:
        compiled = replace(compiled, func=trainer.func)
    if project is not None:
        compiled = _with_project(compiled, project, shipped.path)
    return compiled


def _with_project(compiled: Compiled, project: Project, path: tuple[str, ...]) -> Compiled:
    """Return a trainer whose code travels with the files of a project."""
    assert compiled.code is not None
    code_of_project = replace(compiled.code, source=project.tree.digest, path=path)
    training = project.ships_training(compiled.training)
    return replace(compiled, code=code_of_project, tree=project.tree, training=training)


def _compile_tool(trainer: ToolTrainer, compiled: Compiled, runtime: Mapping[str, Any]) -> Compiled:
    """Return a trainer whose program is that of a tool, with the functions that it calls."""
    started, problems = framework(runtime), list[Problem]()
    if runtime and started != "torch":
        why = f"{trainer.title} is started by torchrun, and the framework of this runtime is {started or 'unknown'}"
        problems.append(Problem("", why, f'runtime="{table(trainer.tool)["runtime"]}"'))
    arguments, wrong = json_value(trainer.arguments(), "")
    for found in wrong:
        problems.append(replace(found, where=_field_of_tool(found.where)))
    modules, rewards, warnings = dict[str, str](), list[dict[str, Any]](), list[Problem]()
    for at, function in enumerate(trainer.functions()):
        reward = from_function(function)
        problems += _of_reward(reward.problems)
        warnings += _of_reward(reward.warnings)
        modules[f"reward_{at}.py"] = reward.script
        rewards.append(_place(reward.script, reward.file, reward.line))
    prints = ""
    if trainer.prints_fields:
        prints = trainer.title
    packages, urls = to_document(trainer.packages_to_install), to_document(trainer.pip_index_urls)
    problems += _other_releases(trainer, packages)
    return Compiled(
        {**compiled.document, "command": command()},
        Code(
            "", arguments, packages, urls, started, tool=trainer.tool, modules=modules or None,
            server=trainer.backend() or None,
        ),
        tuple(problems),
        tuple(warnings),
        check=trainer.argument_problems,
        training=True,
        server=trainer.server(),
        prints=prints,
        rewards=tuple(rewards),
    )  # fmt: skip


def _field_of_tool(path: str) -> str:
    """Return the path of a value in the arguments of a tool, by the fields of its trainer."""
    for start, field in {'["generation"]["config"]': "generation.config", '["config"]': "config"}.items():
        if path.startswith(start):
            return field + path.removeprefix(start)
    return path


def _of_reward(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a function that a tool calls, by the path of the argument."""
    return [replace(problem, where="reward") for problem in problems]


def _read_files(trainer: CustomTrainer, problems: list[Problem]) -> tuple[Project | None, str | None]:
    """Return the project of a trainer and the text of its requirements; None for a missing or rejected one, whose problems are
    added to `problems`.
    """
    project = None
    refused = {problem.where for problem in trainer.check()}
    if "source" in refused or (isinstance(trainer.source, Source) and trainer.source.check()):
        return None, None
    try:
        if trainer.source is not None:
            project = read_project(trainer.source)
    except Invalid as error:
        problems += problems_below("source", error.problems)
        return None, None
    try:
        if trainer.requirements is not None and "requirements" not in refused:
            return project, read_requirements(trainer.requirements, project)
    except Invalid as error:
        problems += error.problems
    return project, None


def _other_releases(trainer: ToolTrainer, packages: Any) -> Iterator[Problem]:
    """Yield the requirements that pip could not install together with the packages of the tool."""
    pinned: dict[str, list[str]] = {}
    for each in map(Requirement, tool_packages(trainer.tool, [], trainer.backend() or None)):
        versions = pinned.setdefault(canonicalize_name(each.name), [])
        for specifier in each.specifier:
            if specifier.operator == "==":
                versions.append(specifier.version)
    for i, word in enumerate(listed(packages)):
        try:
            given = Requirement(word)
        except (InvalidRequirement, TypeError):  # an Output, an option, a path, or reported elsewhere
            continue
        releases = pinned.get(canonicalize_name(given.name))
        if releases and not _allows_one_of(given, releases):
            why = (
                f"{word!r} is another release than {given.name} {releases[-1]}, with which {trainer.title} is installed"
            )
            hint = "leave it out; the plan knows the fields of this release alone"
            yield Problem(f"packages_to_install[{i}]", why, hint)


def _allows_one_of(requirement: Requirement, releases: Sequence[str]) -> bool:
    """Return whether one of the releases of a package index meets a requirement."""
    if requirement.url:
        return False
    return any(requirement.specifier.contains(release, prereleases=True) for release in releases)


def framework(runtime: Mapping[str, Any]) -> Any:
    """Return the framework that selects the launcher: the runtime's label, or the runtime's policy if the label is unknown."""
    label = runtime.get("metadata", {}).get("labels", {}).get(FRAMEWORK, "")
    policy = runtime.get("spec", {}).get("mlPolicy")
    if not isinstance(policy, Mapping) or not isinstance(label, str):
        return label
    for name in (label, *policy):
        if name in ACROSS or _launcher(name):
            return name
    return label


def _launcher(name: str) -> tuple[str, ...] | None:
    return registry.launcher(name) or LAUNCHERS.get(name)


def package_problems(code: Mapping[str, Any]) -> list[Problem]:
    """Return the requirements and index addresses that are not text, and the requirements that pip cannot read."""
    found = []
    for field, name in {"packages_to_install": "packages", "pip_index_urls": "index_urls"}.items():
        given = code.get(name)
        if given is not None and not isinstance(given, (list, Unknown)):
            found.append(Problem(field, f"must be a list of strings, not {type(given).__name__}"))
        for i, each in enumerate(listed(given)):
            if not isinstance(each, (str, Unknown)):
                found.append(Problem(f"{field}[{i}]", f"must be a string, not {type(each).__name__}"))
    return [*found, *_unreadable(code), *_unhashed(code)]


def _unhashed(code: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if pip would refuse all of `packages_to_install`, since the requirements of a file have hashes."""
    named = any(not _is_option(before) and not _is_option(word) for _, before, word in _words(code))
    if named and "--hash=" in (code.get("requirements") or ""):
        why = "the requirements have hashes, and pip then installs nothing without one"
        yield Problem("packages_to_install", why, "add them to the lock or the file of requirements instead")


def _unreadable(code: Mapping[str, Any]) -> Iterator[Problem]:
    for where, before, word in _words(code):
        if not isinstance(word, str) or plaintext_secrets.problems(word, ""):
            continue
        option = _OPTION_WITH_VALUE.match(word)
        if option is not None:
            why = f"{option[1]} and its value are one word, which pip does not read"
            yield Problem(where, why, f'write them as two items: "{option[1]}", "{option[2]}"')
            continue
        if _is_option(before) or _is_option(word):
            continue
        wrong = invalid_requirement(word)
        if wrong:
            hint = 'one requirement each, such as "torch>=2.6,<3", a path, a URL or an option of pip'
            yield Problem(where, f"{word!r} is not a valid requirement: {wrong}", hint)


def _words(code: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each item of `packages_to_install` with its path and the item before it, of which it may be the value."""
    words = listed(code.get("packages"))
    for i, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        yield f"packages_to_install[{i}]", before, word


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-")


def unshipped_packages(code: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the requirements that are files of this machine: without a project, none of them travels to a cluster."""
    if code.get("source") is not None:
        return
    for path in map(required_path, (code.get("requirements") or "").split("\n")):
        if path and Path(path).exists():
            why = f"{path} is a path of this machine, and no file travels with requirements"
            yield Problem("requirements", why, "give the address of a package, or source=")
    for where, before, word in _words(code):
        if not isinstance(word, str):
            continue
        path = word.partition(";")[0].partition("[")[0].strip()
        is_file = before in _FILE_OPTIONS or path.startswith(".") or "/" in path
        if is_file and path and "://" not in path and not path.startswith(("/", "-")) and Path(path).exists():
            why = f"{word} is a path of this machine, and no file travels with packages_to_install"
            hint = "give the address of a package, or source="
            if before in _FILE_OPTIONS[:4]:
                hint = "use requirements="
            yield Problem(where, why, hint)


_FILE_OPTIONS = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
_OPTION_WITH_VALUE = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")


def files(
    script: str, func_args: Any, packages: Any, index_urls: Any, framework: str, source: str | None = None,
    entry: Sequence[str] | None = None, path: Sequence[str] | None = None, requirements: str | None = None,
    env: Sequence[str] = (), stored: Mapping[str, Any] | None = None, line: int = 1, file: str = "",
    checkpoints: bool = False, s3: bool = False, reports: bool = False, logs: bool = False, training: bool = False,
    tool: str | None = None, modules: Mapping[str, str] | None = None, server: str | None = None,
    secrets: Sequence[Sequence[str | int]] = (), rewards: Sequence[Mapping[str, Any]] = (), tracking: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Return the data of the code ConfigMap.

    Args:
        path: Folders of the project that modules are imported from.
        stored: Address of the project's archive and the limit of its bytes, if it is not in the ConfigMap.
        line: Line of the program's file in which the function begins.
        server: What generates in the generation server of the tool.
        secrets: Paths of what is secret in `func_args`, if these are in a Secret.
        rewards: For each function that the tool calls, what `_place` returns of it.
        tracking: Kind of the job's tracker.
    """
    if tool is not None:
        script, packages = _script_text(f"run_{tool}.py"), tool_packages(tool, packages, server)
    install = _install_arguments(requirements, packages, index_urls or [])
    launch: dict[str, Any] = {"install": install, "launcher": list(_launcher(framework) or (PYTHON,))}
    if framework in ACROSS:
        launch["across"] = [*_command_across(framework, env), PYTHON]
    data: dict[str, Any] = dict(modules or {})
    if tool is not None:
        data |= _script_texts(*code.TOOL_FILES)
    if server is not None:
        data[code.SERVER_FILE] = _script_text(code.SERVER_FILE)
        started = {"launcher": [PYTHON], "entry": [f"{code.CODE_PATH}/{code.SERVER_FILE}"]}
        launch["roles"] = {code.SERVER_ROLE: started}
    if source is not None:
        launch |= {"source": source, "folder": code.SOURCE_PATH, "path": list(path or ())}
        data[code.UNPACK_FILE] = _script_text(code.UNPACK_FILE)
    if stored:
        launch |= stored
        data |= _script_texts(code.FETCH_FILE, code.S3_FILE)
    if entry is None:
        data[code.MAIN_FILE] = script
        launch |= _place(script, file, line)
    else:
        launch["entry"] = list(entry)
        if not entry:
            launch["launcher"] = []
    if requirements:
        data[code.REQUIREMENTS_FILE] = requirements
    needed = {
        code.RUN_WITH_CHECKPOINTS_FILE: checkpoints, code.SYNC_FILE: s3, code.STORE_FILE: s3, code.S3_FILE: s3,
        code.REPORT_FILE: reports, code.KEEP_LOG_FILE: logs,
        code.TRACK_FILE: tracking == "mlflow" or (tracking and training), code.TRACKING_FILE: tracking and training,
    }  # fmt: skip
    data |= _script_texts(*(file for file, is_needed in needed.items() if is_needed))
    features = {
        "checkpoints": checkpoints, "report": reports, "logs": logs and code.LOGS_PATH, "tracking": tracking == "mlflow",
    }  # fmt: skip
    launch |= {name: given for name, given in features.items() if given}
    if _WAITING in script:
        launch["modules"] = {code.GLOO_FILE: code.GLOO_FILE}
        data[code.GLOO_FILE] = _script_text(code.GLOO_FILE)
    if training:
        launch["modules"] = {**launch.get("modules", {}), **code.MODULES}
        if tool is not None:
            launch["modules"] = code.TOOL_MODULES
        if tracking:
            launch["modules"] = {**launch["modules"], **code.TRACKING_MODULES}
        data |= _script_texts(code.PACKAGE_FILE, code.TRAINING_NAMES_FILE, code.TRAINING_FILE, code.GLOO_FILE)
        data |= _script_texts(*code.TRAINING_PARTS)
    if checkpoints or training:
        data[code.CHECKPOINT_FILE] = _script_text(code.CHECKPOINT_FILE)
    launch |= {name: given for name, given in (("secrets", secrets), ("rewards", rewards)) if given}
    data |= {
        code.LAUNCH_FILE: _json(launch),
        code.BOOTSTRAP_FILE: bootstrap(),
        code.RUN_FILE: _script_text(code.RUN_FILE),
    }
    if func_args is not None:
        data[code.ARGS_FILE] = _json(func_args, sort_keys=False)
    return data


def _command_across(framework: str, env: Sequence[str]) -> list[str]:
    """Return the command that starts a launcher in each slot of each node, with the trainer's variables."""
    command_line = [*ACROSS[framework]]
    for name in env:
        command_line += ["-x", name]
    return command_line


def _install_arguments(requirements: str | None, packages: Any, urls: Any) -> Any:
    """Return the arguments of `pip install`; empty if nothing is to be installed, unknown if any part is unknown."""
    unknown = first_unknown([packages, urls])
    if unknown:
        return unknown
    flags = chain(["--index-url"], repeat("--extra-index-url"))
    index = chain.from_iterable(zip(flags, urls, strict=False))
    if not requirements and not packages:
        return []
    file: list[str] = []
    if requirements:
        file = ["-r", f"{code.CODE_PATH}/{code.REQUIREMENTS_FILE}"]
    return [*file, *(packages or []), *index]


def tool_packages(tool: str, packages: Any, server: str | None) -> Any:
    """Return the packages of a tool, and those of the user; an image that has them installs nothing. With vLLM, its packages
    replace those of the same name.
    """
    if isinstance(packages, Unknown):
        return packages
    own, others = table(tool)["packages"], []
    if server == "vllm":
        others = table(tool)["vllm"]
        names = tuple(each.partition("==")[0] + "==" for each in others)
        own = [each for each in own if not each.startswith(names)]
    return [*own, *others, *(packages or [])]


def _place(script: str, file: str, line: int) -> dict[str, Any]:
    """Return the entries of the launch file with which tracebacks name the user's file and its lines."""
    place = int(script.startswith(_POSTPONED))
    missing = line - 1 - place
    if missing > 0:
        return {"file": file or code.MAIN_FILE, "lines": [place, missing]}
    if file:
        return {"file": file}
    return {}


def with_exact_script(data: dict[str, Any], script: bytes) -> dict[str, Any]:
    """Return the `data` and `binaryData` of the code ConfigMap with the bytes of a script file, as text if they are UTF-8."""
    try:
        return {"data": {**data, code.MAIN_FILE: script.decode()}}
    except UnicodeDecodeError:
        encoded = {code.MAIN_FILE: base64.b64encode(script).decode()}
        return {"data": without(data, code.MAIN_FILE), "binaryData": encoded}


def _json(value: Any, *, sort_keys: bool = True) -> Any:
    """Return a value as JSON text; unknown if any part is unknown."""
    unknown = first_unknown(value)
    if unknown:
        return unknown
    return json.dumps(value, sort_keys=sort_keys)


@lru_cache(maxsize=16)
def _script_text(name: str) -> str:
    return code.source_of(name).read_text(encoding="utf-8")


def _script_texts(*names: str) -> dict[str, str]:
    return {name: _script_text(name) for name in names}


def bootstrap() -> str:
    """Return the text of bootstrap.py, which installs packages and runs the launcher as its child (`code.RUN_FILE`).

    It stays the first process of the container, and passes SIGTERM once to the program, and not to the processes that a program
    has started, since a DataLoader whose workers end takes the training with it. What a shell has started gets SIGTERM as well,
    since a shell passes no signal on. If a program got SIGTERM and ends with 0, the container ends with 143: Kubernetes would
    otherwise count an interrupted rank as complete. With a checkpoint policy (`code.RUN_WITH_CHECKPOINTS_FILE`), ranks get
    SIGTERM instead of torchrun, which would kill them after 30 seconds.

    Of a program that should report steps, since it has a checkpoint policy or imports `pulumi_trainer.training`, it prints an
    empty report first: a log with that one alone shows that the program has reported none (`api.progress.success_note`).

    The text is part of every job's state, so it has no comments; it only needs the standard library. On the Local target, `layer`
    returns a cached environment instead of pip's. `across` starts the bootstrap again in each slot of each node, so that packages
    are installed on each node, by one process at a time. PET_TEE makes torchrun begin each line of several processes of a node
    with the process that has printed it; torchrun would keep these lines until it has 8 KiB, so its own output is unbuffered. The
    bootstrap names its own folder in sys.path, which Python leaves out with PYTHONSAFEPATH. pip
    may change the packages of the image, also if its distribution has closed them (PEP 668), as in PyTorch's images.

    What installs packages runs in the project, to which their paths are relative, but imports nothing from it: a `json.py` of the
    project would break it. `python -m pip` would put the current folder first in sys.path, in Pythons before 3.11 always.

    A function or a script is started in a folder without modules, since Python puts that folder first in sys.path: the files of
    this one would hide the user's modules of the same name, such as `main` and `training`.
    """
    return _script_text("bootstrap.py")


def command() -> list[str]:
    """Return the container's command: Python and the bootstrap, no shell."""
    return [PYTHON, f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"]
