import fcntl, json, os, subprocess, sys

here = os.path.dirname(__file__)
launch = json.load(open(here + "/launch.json"))
argv = [*launch["launcher"], here + "/main.py"]
layer = os.environ.get("PULUMI_TRAINER_LAYER")
if "across" in launch and "OMPI_COMM_WORLD_RANK" not in os.environ:
    argv = [*launch["across"], __file__]
elif launch["install"]:
    if not layer:
        lock = open(here + "/launch.json")
        fcntl.flock(lock, fcntl.LOCK_EX)
    pip = ["-m", "pip", "install", "--no-input"]
    program = [sys.executable, *([layer] if layer else pip), *launch["install"]]
    done = subprocess.run(program, stdout=subprocess.PIPE if layer else sys.stderr, text=True)
    if done.returncode:
        sys.exit("pulumi-trainer: the packages could not be installed (see above)")
    os.environ.update(json.loads(done.stdout or "{}"))
try:
    os.execvp(argv[0], [*argv, *sys.argv[1:]])
except FileNotFoundError:
    sys.exit(f"pulumi-trainer: {argv[0]} is not on PATH; name its package in packages_to_install")
