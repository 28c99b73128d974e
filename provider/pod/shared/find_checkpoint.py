import json, os, re, sys

FINISHED = {"trainer_state.json", ".metadata", "_CHECKPOINT_METADATA"}
OWN = ".complete"
UPLOADED = ".uploaded"
READERS = 4
BLOCK = 1 << 22


def number_of(name):
    number = re.search(r"(\d+)(?:\.[A-Za-z]\w*)?$", name)
    no_checkpoint = name[:1] == "." or "tmp" in name or name.endswith(".py")  # DeepSpeed leaves zero_to_fp32.py
    return int(number[1]) if number and not no_checkpoint else -1


def newest_first(names):
    found = [(number_of(name), name) for name in names]
    return [name for number, name in sorted(found, reverse=True) if number >= 0]


def newest(folder, damage_of=None):
    os.makedirs(folder, exist_ok=True)
    return newest_whole(folder, os.listdir(folder), "resumes", damage_of or damage)


def newest_whole(folder, names, does, damage_of):
    for name in newest_first(names):
        path = os.path.join(folder, name)
        why = fault(path) or damage_of(path)
        if not why:
            print(f"pulumi-trainer: {does} from {path}", file=sys.stderr)
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


def damage(path):
    marker = os.path.join(path, OWN)
    if not os.path.exists(marker):
        return ""
    try:
        with open(marker, encoding="utf-8") as text:
            wanted = json.load(text).get("sha256") or {}
        found = digests({name: os.path.join(path, name) for name in wanted})
    except Exception as error:
        return f"it cannot be read: {error}"
    damaged = [name for name in wanted if found[name] != wanted[name]]
    return f"{damaged[0]} is damaged: its SHA-256 is not that of {OWN}" if damaged else ""


def digests(files):
    import concurrent.futures  # takes longer to import than all others, and most starts need none

    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        made = {name: pool.submit(digest, path) for name, path in files.items()}
    return {name: each.result() for name, each in made.items()}


def digest(path):
    import hashlib

    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            found.update(block)
    return found.hexdigest()
