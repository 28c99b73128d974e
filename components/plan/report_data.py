import hashlib
import json
import os
import re

MOST_FILES = 2000
MOST_BYTES = 1 << 24


def in_manifest(folder):
    beside = os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.pulumi-trainer.json")
    for path in (beside, os.path.join(folder, ".pulumi-trainer.json")):
        try:
            if os.path.getsize(path) <= MOST_BYTES:
                with open(path, encoding="utf-8") as file:
                    found = json.load(file)
                if found["complete"] is True:
                    return {"revision": str(found["revision"]), "uri": str(found["uri"])}
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue
    return {}


def of_hub(folder):
    for place, _, names in os.walk(os.path.join(folder, ".cache", "huggingface", "download")):
        for name in names:
            if name.endswith(".metadata"):
                with open(os.path.join(place, name), "rb") as file:
                    commit = file.readline(64).decode(errors="replace").strip()
                if re.fullmatch("[0-9a-f]{40}", commit):
                    return {"revision": commit}
    return {}


def by_size(folder):
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".cache"]
        for name in names:
            path = os.path.join(place, name)
            found.append([os.path.relpath(path, folder), os.lstat(path).st_size])
        if len(found) > MOST_FILES:
            return {}
    digest = hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()
    return {"revision": f"files {digest[:12]}"} if found else {}


def report(log="/dev/termination-log"):
    found = {}
    for kind in ("dataset", "model"):
        folder = os.environ.get(f"TRAINER_{kind.upper()}_DIR", "").rstrip("/")
        if folder:
            try:
                found[kind] = in_manifest(folder) or of_hub(folder) or by_size(folder)
            except OSError:
                continue
    if any(found.values()):
        try:
            with open(log, "r+", encoding="utf-8") as file:
                file.write(json.dumps({"pulumi-trainer": found}) + "\n")
        except OSError:
            pass
