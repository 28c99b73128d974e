import os, shutil, signal, sys, tempfile, time

from find_checkpoint import damage, missing_fork, newest, newest_whole, number_of
from run_program import Program, children, exit_with, final

STARTERS = (
    "torchrun",
    "accelerate",
    "torch.distributed.run",
    "accelerate.commands.launch",
    "paddle.distributed.launch",
)
TERMINATED = 128 + signal.SIGTERM
BARRIER = 5
LINGER = 5


def protocol(folder, found, across):
    own = f"{folder}/.trainer-{os.uname().nodename}-{os.environ.get('JOB_COMPLETION_INDEX', '')}"
    try:
        made = own if across else tempfile.mkdtemp(prefix=".trainer-")
    except OSError:
        made = own
    if made == own:  # perhaps with what a container of this name left that was killed
        shutil.rmtree(own, ignore_errors=True)
        try:
            os.makedirs(own)
        except OSError:
            pass
    files = {"TRAINER_STOP_FILE": made + "/stop", "TRAINER_DONE_FILE": made + "/done"}
    return {**files, "TRAINER_RESUME_FROM": found} if found else files


def starts_ranks(argv):
    words = [*argv[:1], *(argv[2:3] if argv[1:2] == ["-m"] else [])]
    return any(os.path.basename(word) in STARTERS for word in words)


def is_starter(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as line:
            words = line.read().split("\0")
    except OSError:
        return False
    return starts_ranks(words) or starts_ranks(words[1:])  # of a script, the first word is its interpreter


class Training(Program):
    def __init__(self, argv, files, across):
        super().__init__(argv)
        self.across, self.stop_file = across, files["TRAINER_STOP_FILE"]
        self.starters, self.alone = [], 0
        grace = os.environ.get("TRAINER_CHECKPOINT_GRACE", "")
        self.grace = int(grace) if grace.isdecimal() else float("inf")
        signal.signal(signal.SIGALRM, self.tick)

    def request_stop(self):
        try:
            open(self.stop_file, "w").close()
        except OSError:
            pass
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
        if not self.across:
            super().request_stop()

    def receivers(self):
        found: list = []
        for pid in super().receivers():
            ranks = children(pid) if is_starter(pid) else []
            self.starters += [pid] if ranks else []
            found += ranks or [pid]
        return found

    def tick(self, *_):
        left = [*filter(is_starter, self.starters)]
        self.alone = self.alone + 1 if left and not any(map(children, left)) else 0
        for pid in left if self.alone == BARRIER else []:
            self.send(pid, signal.SIGTERM)
        if self.group and time.monotonic() - self.stopped >= self.grace:
            found = [*(children(self.group) if self.running else []), *left]
            for pid in found:
                found += children(pid)
            for pid in [*found, -self.group]:
                self.send(pid, signal.SIGKILL)

    def interrupted(self):
        return self.stopped or os.path.exists(self.stop_file)

    def await_stop(self):
        end = time.monotonic() + LINGER
        while not self.interrupted() and time.monotonic() < end:
            time.sleep(0.1)


def fork(folder, step):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    wanted = [name for name in names if step in ("", str(number_of(name)))]
    return newest_whole(folder, wanted, "starts", damage) or sys.exit(missing_fork(folder, step, names))


def run(argv, launch):
    folder, uploads = os.environ["TRAINER_CHECKPOINT_DIR"], None
    if os.environ.get("TRAINER_CHECKPOINT_TO"):
        uploads = __import__("sync_checkpoints").Uploads(folder)
    try:
        found, reset = uploads.restore() if uploads else newest(folder), ""
        origin, step = (os.environ.get(f"TRAINER_FORK_{name}", "") for name in ("FOLDER", "STEP"))
        if origin and not found:
            found, reset = (uploads.fork if uploads else fork)(origin, step), os.environ.get("TRAINER_FORK_RESET", "")
        files = protocol(folder, found, "across" in launch) | ({"TRAINER_RESET": reset} if reset else {})
    except OSError as error:
        sys.exit(f"pulumi-trainer: TRAINER_CHECKPOINT_DIR {folder!r} cannot be used: {error.strerror}")
    os.environ.update(files)
    for name in files if "across" in launch else ():
        argv[len(launch["across"]) - 1 :] = ["-x", name, *argv[len(launch["across"]) - 1 :]]
    program = Training(argv, files, "across" in launch)
    if uploads:
        uploads.when_taken = lambda: os.kill(os.getpid(), signal.SIGTERM)  # what it saves from now on is not kept
        uploads.start()
    code = program.run()
    missing = uploads.finish(lambda: program.stopped) if uploads else ""
    taken = bool(uploads and uploads.taken)
    if missing:
        succeeds = not (code or taken or program.interrupted())
        fails = "; the container fails, so that the job goes on from there" if succeeds else ""
        print(f"pulumi-trainer: {missing}{fails}", file=sys.stderr)
    if code:
        program.await_stop()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    interrupted, done = program.interrupted(), os.path.exists(files["TRAINER_DONE_FILE"])
    shutil.rmtree(os.path.dirname(files["TRAINER_STOP_FILE"]), ignore_errors=True)
    if taken:  # as an interruption, it would start again without end
        exit_with(1)
    if interrupted:
        exit_with(0 if done and not missing else TERMINATED)
    if code in (TERMINATED, -signal.SIGTERM):
        print("pulumi-trainer: the program was ended by a SIGTERM that its container did not receive", file=sys.stderr)
        code = 1
    exit_with(final(code) or int(bool(missing)))
