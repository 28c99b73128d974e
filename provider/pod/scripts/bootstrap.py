import fcntl, json, os, signal, site, subprocess, sys, tempfile

sys.dont_write_bytecode = True
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
here = os.path.dirname(__file__)
sys.path.insert(0, here)
launch = json.load(open(here + "/launch.json"))
launch.update(launch.get("roles", {}).get(os.environ.get("TRAINER_ROLE"), {}))
argv = [*launch["launcher"], *launch.get("entry", [here + "/main.py"])]
slot = "across" in launch and "OMPI_COMM_WORLD_RANK" in os.environ
if "logs" in launch and not slot:
    __import__("keep_log").start(launch["logs"])
if ("file" in launch or ("source" in launch and "entry" not in launch)) and (slot or "across" not in launch):
    try:
        folder = tempfile.mkdtemp(prefix="main.py-")
        file, text = folder + "/" + launch.get("file", "main.py"), folder + "/.text/not-a-module.py"
        os.makedirs(os.path.dirname(file), exist_ok=True)
        os.mkdir(os.path.dirname(text))
        with open(here + "/main.py", "rb") as script:
            lines = script.read().split(b"\n")
        if "lines" in launch:
            lines[launch["lines"][0] : launch["lines"][0]] = [b""] * launch["lines"][1]
        with open(text, "wb") as script:
            script.write(b"\n".join(lines))
        os.symlink(text, file)
        if os.path.exists(here + "/func_args.json"):
            os.symlink(here + "/func_args.json", os.path.dirname(file) + "/func_args.json")
        argv[-1] = file
    except (OSError, ValueError):
        pass
if "tracking" in launch and not slot:
    __import__("track_run").start()
layer, python_path = os.environ.get("PULUMI_TRAINER_LAYER"), os.environ.get("PYTHONPATH", "")
if slot:  # the names of torch.distributed, so that it and DeepSpeed need no mpi4py
    for name in ("RANK", "LOCAL_RANK"):
        os.environ.setdefault(name, os.environ.get("OMPI_COMM_WORLD_" + name, "0"))
    for name in ("SIZE", "LOCAL_SIZE"):
        value = os.environ.get("OMPI_COMM_WORLD_" + name, "1")
        os.environ.setdefault(name.replace("SIZE", "WORLD_SIZE"), value)
if "across" in launch and not slot:
    argv = [*launch["across"], __file__]
    if "--hostfile" in argv:
        # Open MPI 4 places rank 0 on the launcher if the file lists it, 5 on the first host of the file
        place = argv.index("--hostfile") + 1
        with open(argv[place]) as file:
            hosts = sorted(file, key=lambda line: line.split(".")[0] != os.uname().nodename.split(".")[0])
        with tempfile.NamedTemporaryFile("w", prefix="hostfile-", delete=False) as file:
            file.writelines(hosts)
        argv[place], where = file.name, {"MASTER_ADDR": hosts[0].split()[0], "MASTER_PORT": "29500"}
        for name in where.keys() - {*argv}:
            os.environ.setdefault(name, where[name])
            argv[-2:-2] = ["-x", name]
else:
    if "source" in launch:
        __import__("unpack_source")
    if launch["install"]:
        lock = open(here + "/launch.json")
        if not layer:
            fcntl.flock(lock, fcntl.LOCK_EX)
        start = "import sys; sys.path[:] = filter(None, sys.path); import runpy"
        pip = ["-c", start + "; runpy.run_module('pip', run_name='__main__', alter_sys=True)", "install", "--no-input"]
        program = [sys.executable, *([layer] if layer else pip), *launch["install"]]
        env = {"PIP_BREAK_SYSTEM_PACKAGES": "1", **os.environ, "PYTHONPATH": python_path}
        done = subprocess.run(program, stdout=subprocess.PIPE if layer else sys.stderr, text=True, env=env)
        if done.returncode:
            sys.exit("pulumi-trainer: the packages could not be installed (see above)")
        added = json.loads(done.stdout or "{}")
        if "PYTHONPATH" in added:
            packages = added["PYTHONPATH"].split(os.pathsep)[:1]
            added["PYTHONPATH"] = os.pathsep.join([*packages, *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ.update(added)
        lock.close()
        if not layer:
            own = os.path.join(site.getuserbase(), "bin")
            os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + own
    if "report" in launch and os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        __import__("report_inputs").report(launch["install"])
    if "modules" in launch:
        folder = tempfile.mkdtemp(prefix="modules-")
        os.environ["TRAINER_FINAL_FILE"] = folder + "/final"
        for name, file in launch["modules"].items():
            os.makedirs(os.path.dirname(folder + "/" + name), exist_ok=True)
            os.symlink(here + "/" + file, folder + "/" + name)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
reports = "checkpoints" in launch or "pulumi_trainer/training.py" in launch.get("modules", {})
if reports and os.environ.get("TRAINER_RUN_ID") and __import__("run_program").own_node() == 0 and not slot:
    print('{"trainerStatus": {"metrics": []}}', flush=True)
argv += sys.argv[1:]
if argv[0] == "torchrun" and os.environ.get("PET_NPROC_PER_NODE", "1") != "1":
    os.environ.setdefault("PET_TEE", "3")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
try:
    if slot:
        os.execvp(argv[0], argv)
    if "checkpoints" in launch and "TRAINER_CHECKPOINT_DIR" in os.environ:
        __import__("run_with_checkpoints").run(argv, launch)
    __import__("run_program").run(argv)
except FileNotFoundError:
    needed = "use an image with Open MPI" if argv[0] == "mpirun" else "name its package in packages_to_install"
    sys.exit(f"pulumi-trainer: {argv[0]} is not on PATH; {needed}")
except OSError as error:
    sys.exit(f"pulumi-trainer: {argv[0]} cannot be started: {error.strerror}")
