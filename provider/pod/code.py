"""Paths of user code inside a container, and the files of its ConfigMap.

`components` writes the ConfigMap, `bootstrap.py` in it reads it, and the Local target maps its paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.terminal import last_state

CODE_VOLUME = "trainer-code"


def code_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's code. It has no digest, so the plan can show changed code line by line."""
    return f"{job}-code"


CODE_PATH = "/etc/pulumi-trainer/code"
BOOTSTRAP_FILE = "bootstrap.py"
RUN_FILE = "run_program.py"
"""What the bootstrap starts the launcher with: it passes signals on and waits for the end."""
RUN_WITH_CHECKPOINTS_FILE = "run_with_checkpoints.py"
"""The same with a checkpoint policy."""
CHECKPOINT_FILE = "find_checkpoint.py"
"""What finds the newest complete checkpoint; with a checkpoint policy, or where the code imports `pulumi_trainer.training`."""
SYNC_FILE = "sync_checkpoints.py"
"""What downloads checkpoints from S3 and uploads them; with a checkpoint policy whose checkpoints are there."""
STORE_FILE = "checkpoint_store.py"
"""What `SYNC_FILE` imports: the checkpoints of a lineage in S3, their manifests and their owner."""
S3_FILE = "s3.py"
"""Requests to S3, for `STORE_FILE` and `FETCH_FILE`."""
PACKAGE_FILE = "package.py"
"""`__init__.py` of the package `pulumi_trainer` and those inside of it, of a job whose code imports the module below."""
TRAINING_FILE = "training.py"
"""What `pulumi_trainer.training` gives, only where the code imports it."""
TRAINING_PARTS = ("training_files.py", "training_ranks.py", "training_state.py", "training_stop.py")
"""What `TRAINING_FILE` imports."""
TRAINING_NAMES_FILE = "training_names.py"
"""`pulumi_trainer.training`: the public names of `TRAINING_FILE`."""
GLOO_FILE = "wait_for_gloo.py"
"""What a rank waits with at its end, for torch's threads of gloo: of functions that use `torch.distributed`."""
MODULES = {
    "pulumi_trainer/__init__.py": PACKAGE_FILE,
    "pulumi_trainer/training.py": TRAINING_NAMES_FILE,
    "pulumi_trainer/provider/__init__.py": PACKAGE_FILE,
    "pulumi_trainer/provider/pod/__init__.py": PACKAGE_FILE,
    "pulumi_trainer/provider/pod/training.py": TRAINING_FILE,
    "pulumi_trainer/provider/pod/wait_for_gloo.py": GLOO_FILE,
    "pulumi_trainer/provider/pod/shared/__init__.py": PACKAGE_FILE,
    "pulumi_trainer/provider/pod/shared/find_checkpoint.py": CHECKPOINT_FILE,
    **{f"pulumi_trainer/provider/pod/shared/{file}": file for file in TRAINING_PARTS},
}
"""File of a package that a job's code imports -> file of the ConfigMap. The bootstrap makes a folder of them for PYTHONPATH; a
package of this name that the image has is still found, except for these files."""
TOOL_MODULES = {**MODULES, "pulumi_trainer/provider/pod/shared/check_data.py": "check_data.py"}
"""The same for the program of a tool, with what finds faults of its data and model."""
TOOL_FILES = ("run_tool.py", "finish_tool.py", "merge_adapter.py", "model_card.py", "check_data.py")
"""What the programs of all tools share: the fields that the job sets, callbacks and reward functions; what follows the training;
the program that merges an adapter into its base model; the text of the model card; what finds faults of data and model."""


def source_of(file: str) -> Path:
    """Return the file of this package that a file of the ConfigMap is a copy of."""
    pod = Path(__file__).parent
    if file == TRAINING_NAMES_FILE:
        return pod.parents[1] / "training.py"
    return next(path for path in (pod / file, pod / "shared" / file, pod / "scripts" / file) if path.exists())


CARD_FILE = "card.json"
"""What the plan knows of a tool's job, for its model card."""
SERVER_FILE = "run_generation.py"
"""What a generation server starts, and what connects the program of a tool with it."""
SERVER_ROLE = "generation"
"""Value of TRAINER_ROLE in a generation server; name of its ReplicatedJob and of its container."""
KEEP_LOG_FILE = "keep_log.py"
"""What copies the output of a container into `LOGS_PATH`; only with `logs="keep"`."""
REPORT_FILE = "report_inputs.py"
"""What reports the revisions of data and the versions of packages (`jobs.observed_inputs`); only where the job has any."""
TRACK_FILE = "track_run.py"
"""What finds or makes the run of a job on an MLflow server, and what writes forwarded metrics to a tracker; with `tracking`."""
TRACKING_FILE = "training_tracking.py"
"""What `TRAINING_FILE` imports with `tracking`."""
TRACKING_MODULES = {f"pulumi_trainer/provider/pod/shared/{TRACKING_FILE}": TRACKING_FILE}
MAIN_FILE = "main.py"
ARGS_FILE = "func_args.json"
LAUNCH_FILE = "launch.json"
"""JSON: {"install": [arguments of pip install], "launcher": ["torchrun"]}; "across": what starts that on all nodes. With a
project: "source": its digest, "folder": where it is unpacked, "address" and "limit" (bytes): of an archive that no ConfigMap
holds, "path": its folders for PYTHONPATH, "entry": what the launcher gets instead of `MAIN_FILE`. With a function or script:
"file": its name in the project, under which the bootstrap starts `MAIN_FILE`, so that tracebacks name it. With a function:
"lines": where the bootstrap inserts how many blank lines into a copy of `MAIN_FILE`, so that tracebacks have the line numbers
of the program. With a checkpoint policy: "checkpoints"; with data or packages: "report"; with kept logs, "logs": `LOGS_PATH`;
with a run that MLflow names: "tracking".
"roles": what replaces these for a value of TRAINER_ROLE. "modules": `MODULES`, if the code imports one of them. "rewards": "file"
and "lines" of each function that a tool calls. "secrets": paths in `ARGS_FILE` of what is secret, if that file is in a Secret."""

REQUIREMENTS_FILE = "requirements.txt"
UNPACK_FILE = "unpack_source.py"
SOURCE_FILE = "source.tar.gz"
"""The archive of the project that travels with the job. The target adds it; the rendered ConfigMap has only its digest."""
FETCH_FILE = "fetch_source.py"
SOURCE_ADDRESS = "pulumi-trainer.dev/source-address"
"""Annotation of the code ConfigMap: where the target writes the archive instead."""
SOURCE_DIGEST = "pulumi-trainer.dev/source"
"""Annotation of the code ConfigMap: the digest of the project's files."""
SOURCE_VOLUME = "trainer-source"
SOURCE_PATH = "/opt/pulumi-trainer/source"
_PREFIX = r"(?P<prefix>(?:\[(?:rank|default)\d{1,9}\]: ?)*)"
"""What torchrun and PyTorch begin the lines of a process with."""
_OWN_FOLDER = rf"(?:(?:{SOURCE_PATH}|/volumes/{SOURCE_VOLUME})/project|/main\.py-\w+)/"
_FOLDER = re.compile(
    rf'(?P<file>File ")[^"\n]*?{_OWN_FOLDER}|^{_PREFIX}(?=/)[^":\n]*?{_OWN_FOLDER}(?=[^":\n]{{1,500}}:\d{{1,9}}: \w{{1,99}}: )',
    re.MULTILINE,
)
"""Beginning of the name of a project's, function's or script's file in a traceback, or in a warning as Python prints it."""
_OWN_CALL = (
    r"(?:\w+\(\*\*\w+\.loads\(\w+\.Path\(__file__\)\.with_name\(.func_args\.json.\)\.read_text\(encoding=.utf-8.\)\)\)"
    r"|getattr\(importlib\.import_module\(.*\)\(\*\*json\.loads\(arguments\)\))"
)
"""The line that calls the user's function: of `user_code._FOOTER`, and of `project_code._IMPORTED`."""
_CALL = re.compile(
    rf'^{_PREFIX} *File ".*", line \d+, in <module>\n(?P=prefix) +{_OWN_CALL}\n(?:(?P=prefix)[ ~^]+\n)?'
    r'(?=(?P=prefix) *File ")',
    re.MULTILINE,
)
"""Its frame in a traceback that has others; Python below 3.11 and PyTorch do not underline it."""

WORKSPACE = "/workspace"
DATASET_PATH = "/workspace/dataset"
MODEL_PATH = "/workspace/model"
OUTPUT_PATH = "/workspace/output"
CHECKPOINT_PATH = "/workspace/output/checkpoints"
FORK_PATH = "/workspace/fork"
"""Where a fork finds the folder of the lineage that it starts from."""
LOGS = "logs"
"""Folder of the output with the kept logs, which has a folder for each run."""
LOGS_PATH = f"{OUTPUT_PATH}/{LOGS}"
SCRATCH_VOLUME = "trainer-checkpoints"
SCRATCH_PATH = "/workspace/checkpoints"
"""Folder of each node for checkpoints that go to S3."""

MANIFEST = ".pulumi-trainer.json"
"""File in which an initializer describes the data that it has fetched."""


def secret_texts(secret: Mapping[str, str], launch: str) -> Iterator[str]:
    """Yield what is secret in the values of a Secret: of the arguments, only those that the launch file names. launch: Text of
    the launch file. If it names no paths that exist, all arguments may be secret."""
    for key, value in secret.items():
        try:
            yield from _at_paths(json.loads(value), json.loads(launch)["secrets"]) if key == ARGS_FILE else [value]
        except (ValueError, LookupError, TypeError, RecursionError):
            yield value


def _at_paths(arguments: Any, paths: Sequence[Sequence[Any]]) -> list[str]:
    """Return the texts at paths of arguments; of an object or a list its JSON. Numbers would occur everywhere."""
    found = []
    for path in paths:
        value = arguments
        for step in path:
            value = value[step]
        if isinstance(value, (str, dict, list)):
            found.append(value if isinstance(value, str) else json.dumps(value))
    return found


def with_user_tracebacks(output: str) -> str:
    """Return the output of a container whose tracebacks are about the user's code alone.

    They name its files as the project does, `src/model.py`, and begin with the function, not with the line below it that calls
    it: the user has not written that line, and another one of the file has its number. Of a line that overwrites itself (a
    progress bar), the last state is returned.
    """
    lines = "\n".join(map(last_state, output.split("\n")))
    return _CALL.sub("", with_user_paths(lines))


def with_user_paths(lines: str) -> str:
    """Return lines of a container whose tracebacks and warnings name the files of the user's code as the project does."""
    if "/project/" in lines or "/main.py-" in lines:  # few lines of a long log do
        return _FOLDER.sub(r"\g<file>\g<prefix>", lines)
    return lines


def manifest_of(data: Path) -> Path:
    """Return the path of a folder's manifest: beside the folder, so that a listing of the folder contains only data."""
    return data.with_name(f".{data.name}{MANIFEST}")


LAYER_ENV = "PULUMI_TRAINER_LAYER"
"""Set by the Local target: the program that answers a set of packages with a cached environment
(`pod/layer.py`)."""

UV_ENV = "PULUMI_TRAINER_UV"
"""Set by the Local target: the path of uv, with which that program installs packages."""

ENVIRONMENTS_ENV = "PULUMI_TRAINER_ENVIRONMENTS"
"""Set by the Local target: the folder with a cached Python environment for each set of packages."""

REPORT_ENV = "PULUMI_TRAINER_REPORT"
"""Set by the Local target: where `REPORT_FILE` writes instead of into a termination message."""

INSTALLED_ENV = "PULUMI_TRAINER_INSTALLED"
"""Set by the Local target: the file into which `layer.py` writes the path of the environment when the packages are there."""

INSTALLING = ".installing"
"""Suffix of the file beside it: what `layer.py` does until then."""
