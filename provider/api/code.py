"""Where user code lies inside a container, and the files of its ConfigMap.

`components` writes the ConfigMap, `bootstrap.py` (in it) reads it, the Local target maps its paths: the names are
therefore in one place.
"""

from __future__ import annotations

from pathlib import Path

CODE_VOLUME = "trainer-code"
CODE_PATH = "/etc/pulumi-trainer/code"
BOOTSTRAP_FILE = "bootstrap.py"
MAIN_FILE = "main.py"
ARGS_FILE = "func_args.json"
LAUNCH_FILE = "launch.json"
"""JSON: {"install": [arguments of pip install], "launcher": ["torchrun"]}; "across": what starts that on all nodes."""

WORKSPACE = "/workspace"
DATASET_PATH = "/workspace/dataset"
MODEL_PATH = "/workspace/model"
OUTPUT_PATH = "/workspace/output"

MANIFEST = ".pulumi-trainer.json"
"""What an initializer writes about the data that it has fetched."""


def manifest_of(data: Path) -> Path:
    """Return where the manifest of a folder lies: beside it, so that whoever lists the folder finds data alone."""
    return data.with_name(f".{data.name}{MANIFEST}")


LAYER_ENV = "PULUMI_TRAINER_LAYER"
"""Set by the Local target: the program that answers a set of packages with a cached environment
(`targets/local/layer.py`)."""

ENVIRONMENTS_ENV = "PULUMI_TRAINER_ENVIRONMENTS"
"""Set by the Local target: the folder that holds one cached Python environment per set of packages."""

INSTALLED_ENV = "PULUMI_TRAINER_INSTALLED"
"""Set by the Local target: the file that `layer.py` makes when the packages are there."""
