"""Runs in the container: installs packages, then becomes the launcher. Standard library only."""

import json
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).parent
launch = json.loads((here / "launch.json").read_text(encoding="utf-8"))
if launch["packages"]:
    urls = launch["indexUrls"]
    index = [w for i, u in enumerate(urls) for w in ("--extra-index-url" if i else "--index-url", u)]
    pip = [sys.executable, "-m", "pip", "install", "--no-input", *launch["packages"], *index]
    layer = os.environ.get("PULUMI_TRAINER_LAYER")
    if layer:  # the Local target: a cached environment instead of a container of one's own
        built = subprocess.run([sys.executable, layer, *pip[5:]], stdout=subprocess.PIPE, text=True)
        os.environ.update(json.loads(built.stdout or "{}"))
    else:
        built = subprocess.run(pip, stdout=sys.stderr, text=True)
    if built.returncode:
        sys.exit("pulumi-trainer: the packages could not be installed (see above)")
argv = [*(launch["launcher"] or ["python3"]), str(here / launch["script"]), *sys.argv[1:]]
try:
    os.execvp(argv[0], argv)
except FileNotFoundError:
    sys.exit(f"pulumi-trainer: {argv[0]} is not on PATH; name its package in packages_to_install")
