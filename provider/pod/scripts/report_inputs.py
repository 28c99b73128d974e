import hashlib, json, os, re, site, sys

MOST_FILES = 2000
MOST_BYTES = 1 << 24
LONGEST = 900
MOST_OF_MESSAGE = 4000
ALONE = ("--pre", "--no-deps", "--no-index", "--upgrade", "-U", "--user", "--no-cache-dir", "--force-reinstall")


def in_manifest(path):
    try:
        if os.path.getsize(path) <= MOST_BYTES:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found["complete"] is True:
                return {"revision": str(found["revision"])[:200], "uri": str(found["uri"])[:1000]}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    return {}


def revision(folder):
    beside = os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.pulumi-trainer.json")
    own = os.path.join(folder, ".pulumi-trainer.json")
    return in_manifest(beside) or of_hub(folder) or in_manifest(own) or by_size(folder)


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
    found: list = []
    for number, (place, folders, names) in enumerate(os.walk(folder)):
        if number > MOST_FILES:
            return {}
        folders[:] = [name for name in folders if name != ".cache"]
        for name in names:
            if len(found) == MOST_FILES:
                return {}
            path = os.path.join(place, name)
            found.append([os.path.relpath(path, folder), os.lstat(path).st_size])
    digest = hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()
    return {"revision": f"files {digest[:12]}"} if found else {}


def data():
    found = {}
    for kind in ("dataset", "model"):
        folder = os.environ.get(f"TRAINER_{kind.upper()}_DIR", "").rstrip("/")
        if folder:
            try:
                found[kind] = revision(folder)
            except Exception:  # whatever the data are, the training starts
                found[kind] = {}
    return {kind: about for kind, about in found.items() if about}


def canonical(name):
    return re.sub("[-_.]+", "-", name).lower()


def unpinned(words):
    for before, word in zip(["", *words], words):
        if before in ("-r", "--requirement"):
            try:
                with open(word, encoding="utf-8") as file:
                    for line in file:
                        yield from unpinned([line.strip()])
            except (OSError, ValueError):
                continue
        elif not before.startswith("-") or "=" in before or before in ALONE:
            requirement = re.split("[;#]", word)[0]
            name = re.match("[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
            if name and not re.search(r"==[^*]*$|://", requirement):
                yield canonical(name[0])


def packages(words):
    from importlib import metadata

    names = dict.fromkeys(unpinned(words))
    if not names:
        return ""
    above = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for each in metadata.distributions(path=[*filter(None, above), *sys.path, site.getusersitepackages()]):
        name = canonical(each.metadata["Name"] or "")
        if name in names and not names[name]:
            names[name] = each.version
        if all(names.values()):
            break
    found = ", ".join(f"{name} {version}" for name, version in names.items() if version)
    if len(found) > LONGEST:
        return f"{found[: LONGEST - 20]}... ({hashlib.sha256(found.encode()).hexdigest()[:12]})"
    return found


def report(install):
    log = os.environ.get("PULUMI_TRAINER_REPORT")
    found = {} if log else data()
    try:
        installed = packages(install)
    except Exception:  # whatever a package has left there, the training starts
        installed = ""
    if installed:
        found["packages"] = installed
    line = json.dumps({"pulumi-trainer": found}) + "\n"
    if log or (found and len(line) <= MOST_OF_MESSAGE):
        try:
            with open(log or "/dev/termination-log", "w" if log else "r+", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            pass
