import base64, json, os, queue, re, sys, threading, time, urllib.error, urllib.parse, urllib.request

from run_program import own_node

SECONDS = 10
WAIT = 60
PAUSE = 2
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
API = "/api/2.0/mlflow/"
TITLES = {"mlflow": "MLflow", "wandb": "W&B", "tensorboard": "TensorBoard", "trackio": "Trackio"}


def reason(error):
    if isinstance(error, urllib.error.HTTPError):
        try:
            return f"{error.code} {json.loads(error.read(4096))['message']}"[:200]
        except (ValueError, LookupError, TypeError, OSError):
            return f"{error.code} {error.reason}"
    return " ".join(str(getattr(error, "reason", error) or type(error).__name__).split())[:200]


def warn(error, follows, file=None):
    title = TITLES.get(os.environ.get("TRAINER_TRACKING", ""), "the tracker")
    print(f"pulumi-trainer: {title}: {reason(error)}; {follows}", file=file or sys.stderr, flush=True)


def call(name, given=None):
    headers, data = {"Content-Type": "application/json"}, None if given is None else json.dumps(given).encode()
    token, user, password = (os.environ.get(f"MLFLOW_TRACKING_{each}") for each in ("TOKEN", "USERNAME", "PASSWORD"))
    if user and password:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    elif token:
        headers["Authorization"] = f"Bearer {token}"
    address = os.environ["MLFLOW_TRACKING_URI"].rstrip("/") + API + name
    with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=SECONDS) as answer:
        return json.load(answer)


def experiment(name, make):
    wanted = "experiments/get-by-name?" + urllib.parse.urlencode({"experiment_name": name})
    try:
        return call(wanted)["experiment"]["experiment_id"]
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
    if not make:
        return ""
    try:
        return call("experiments/create", {"name": name})["experiment_id"]
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
    return call(wanted)["experiment"]["experiment_id"]  # another job has made it since


def find(first):
    group, run = experiment(os.environ["MLFLOW_EXPERIMENT_NAME"], first), os.environ["TRAINER_RUN_ID"]
    name = os.environ["TRAINER_TRACKING_NAME"]
    tags = {"pulumi-trainer.job": name[: -len(run) - 1], "pulumi-trainer.run": run}
    same = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    known = group and call("runs/search", {"experiment_ids": [group], "filter": same, "max_results": 1}).get("runs")
    if known:
        return group, known[0]["info"]["run_id"]
    if not first:
        return None
    pairs = [{"key": key, "value": value} for key, value in {**tags, "mlflow.runName": name}.items()]
    began = {"experiment_id": group, "run_name": name, "start_time": int(time.time() * 1000), "tags": pairs}
    return group, call("runs/create", began)["run"]["info"]["run_id"]


def start():
    if os.environ.get("TRAINER_TRACKING") != "mlflow":
        return
    first, end = own_node() == 0, time.monotonic() + WAIT
    try:
        found = find(first)
        while found is None:
            if time.monotonic() > end:
                raise TimeoutError(f"node 0 has made no run within {WAIT} seconds")
            time.sleep(PAUSE)
            found = find(first)
        if first:
            call("runs/update", {"run_id": found[1], "status": "RUNNING"})
    except Exception as error:  # whatever the server answers, the training starts
        warn(error, "training goes on without a run there that all attempts share")
        return
    os.environ.update(MLFLOW_RUN_ID=found[1], TRAINER_TRACKING_RUN="/".join(found))
    if first:
        print(json.dumps({"trainerStatus": {"tracking": "/".join(found)}}), flush=True)


def end(code):
    run = os.environ.get("TRAINER_TRACKING_RUN", "").rpartition("/")[2]
    if run and own_node() == 0:
        status = {0: "FINISHED", 143: "KILLED", -15: "KILLED"}.get(code, "FAILED")
        try:
            call("runs/update", {"run_id": run, "status": status, "end_time": int(time.time() * 1000)})
        except Exception as error:
            warn(error, f"its run does not show that this attempt has ended ({status})")


class MLflow:
    def __init__(self):
        self.run = os.environ["TRAINER_TRACKING_RUN"].rpartition("/")[2]

    def log(self, step, metrics):
        now, listed = int(time.time() * 1000), []
        for name, value in metrics.items():
            number = NOT_FINITE.get(str(value), value)
            key = re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)
            listed.append({"key": key, "value": number, "timestamp": now, "step": step})
        call("runs/log-batch", {"run_id": self.run, "metrics": listed})

    def finish(self, code):
        pass


class WandB:
    def __init__(self):
        import wandb

        self.run = wandb.init(settings=wandb.Settings(console="off", silent=True))
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def log(self, step, metrics):
        self.run.log({**metrics, "step": step})

    def finish(self, code):
        self.run.finish(exit_code=code)


class TensorBoard:
    def __init__(self):
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = event_pb2.Event, summary_pb2.Summary
        self.writer = EventFileWriter(os.environ["TENSORBOARD_LOGGING_DIR"])

    def log(self, step, metrics):
        values = [self.summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(self.event(wall_time=time.time(), step=step, summary=self.summary(value=values)))
        self.writer.flush()

    def finish(self, code):
        self.writer.close()


class TensorBoardX:
    def __init__(self):
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(os.environ["TENSORBOARD_LOGGING_DIR"])

    def log(self, step, metrics):
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def finish(self, code):
        self.writer.close()


class Trackio:
    def __init__(self):
        import trackio

        project, name = (os.environ[f"TRAINER_TRACKING_{each}"] for each in ("PROJECT", "NAME"))
        options = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.trackio = trackio
        trackio.init(project, name, name[: -len(os.environ["TRAINER_RUN_ID"]) - 1], resume="allow", **options)

    def log(self, step, metrics):
        self.trackio.log(metrics, step=step)

    def finish(self, code):
        self.trackio.finish()


def open_writer(kind):
    if kind == "tensorboard":
        try:
            return TensorBoard()
        except ImportError:
            return TensorBoardX()
    return {"mlflow": MLflow, "wandb": WandB, "trackio": Trackio}[kind]()


def read(lines):
    for line in sys.stdin.buffer:
        try:
            lines.put(json.loads(line))
        except ValueError:  # part of a line that did not fit into the pipe
            pass
    lines.put(None)


def forward():
    log, warned, code = os.fdopen(os.dup(2), "w"), False, 1
    lines: queue.SimpleQueue = queue.SimpleQueue()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    threading.Thread(target=read, args=(lines,), daemon=True).start()
    follows = "training goes on, and its metrics are in its log alone"
    try:
        writer = open_writer(os.environ["TRAINER_TRACKING"])
    except Exception as error:
        return warn(error, follows, log)
    for given in iter(lines.get, None):
        try:
            code = given.get("end", code)
            if "metrics" in given:
                writer.log(given["step"], given["metrics"])
        except Exception as error:
            if not warned:
                warn(error, follows, log)
            warned = True
    try:
        writer.finish(code)
    except Exception as error:
        if not warned:
            warn(error, "it may lack the last metrics", log)


if __name__ == "__main__":
    del sys.path[0]  # the files beside this one would hide modules of packages
    forward()
