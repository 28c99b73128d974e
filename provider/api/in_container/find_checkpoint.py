import json, os, re, sys

FINISHED = {"trainer_state.json", ".metadata", "_CHECKPOINT_METADATA"}
OWN = ".complete"
UPLOADED = ".uploaded"


def number_of(name):
    number = re.search(r"(\d+)(?:\.[A-Za-z]\w*)?$", name)
    return int(number[1]) if number and name[0] != "." and "tmp" not in name else -1


def newest_first(names):
    found = [(number_of(name), name) for name in names]
    return [name for number, name in sorted(found, reverse=True) if number >= 0]


def newest(folder):
    os.makedirs(folder, exist_ok=True)
    for name in newest_first(os.listdir(folder)):
        path = os.path.join(folder, name)
        why = fault(path)
        if not why:
            print(f"pulumi-trainer: resumes from {path}", file=sys.stderr)
            return path
        print(f"pulumi-trainer: skips {path}: {why}", file=sys.stderr)
    return ""


def fault(path, part=False):
    try:
        if not os.path.isdir(path):
            return "" if os.path.getsize(path) else "it is empty"
        names = set(os.listdir(path))
        marked = [name for name in names if "incomplete" in name]
        if marked:
            return f"it has {marked[0]}"
        if OWN in names:
            return wrong_size(path, part)
        if "trainer_state.json" in names:
            with open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as state:
                json.load(state)
        return "" if names & FINISHED else "nothing marks it as complete"
    except Exception as error:
        return f"it cannot be read: {error}"


def wrong_size(path, part):
    with open(os.path.join(path, OWN), encoding="utf-8") as marker:
        wanted = json.load(marker)
    for name, size in wanted["files"].items():
        if os.path.getsize(os.path.join(path, name)) != size:
            return f"{name} is incomplete"
    return "" if part or wanted.get("nodes", 1) == 1 else "it is the part of one node"


def missing_fork(place, step, names):
    which = f"checkpoint of step {step}" if step else "checkpoint"
    left = ", ".join(str(number_of(name)) for name in newest_first(names)) or "none"
    return f"pulumi-trainer: {place} has no complete {which} to start from (steps that are there: {left})"
