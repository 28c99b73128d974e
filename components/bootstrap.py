import json, os, subprocess, sys

here = os.path.dirname(__file__)
launch = json.load(open(here + "/launch.json"))
layer = os.environ.get("PULUMI_TRAINER_LAYER")
if launch["install"]:
    pip = ["-m", "pip", "install", "--no-input"]
    argv = [sys.executable, *([layer] if layer else pip), *launch["install"]]
    done = subprocess.run(argv, stdout=subprocess.PIPE if layer else sys.stderr, text=True)
    if done.returncode:
        sys.exit("pulumi-trainer: the packages could not be installed (see above)")
    os.environ.update(json.loads(done.stdout or "{}"))
argv = [*launch["launcher"], here + "/main.py", *sys.argv[1:]]
try:
    os.execvp(argv[0], argv)
except FileNotFoundError:
    sys.exit(f"pulumi-trainer: {argv[0]} is not on PATH; name its package in packages_to_install")
