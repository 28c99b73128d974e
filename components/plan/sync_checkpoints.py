import json, os, re, shutil, sys, threading, time

from find_checkpoint import OWN, UPLOADED, fault, newest, newest_first, number_of
from s3 import Bucket, DiskFailed, Failed

MANIFESTS = "manifests/"
MOST_FILES = 100_000
MOST_BYTES = 1 << 50
PERIOD = 1
POLL = 5
SETTLED = 3
LONGEST_PAUSE = 60
RESERVE = 8
SHARDED = {".metadata", "_CHECKPOINT_METADATA"}
SHARDS = ("zero_pp_rank_", "bf16_zero_pp_rank_")


class Unusable(Exception):
    pass


class Incomplete(Unusable):
    pass


def log(text):
    print(f"pulumi-trainer: {text}", file=sys.stderr, flush=True)


def count(name, default):
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def files_below(path):
    if not os.path.isdir(path):
        return {"": path}
    found = {}
    for place, _, names in os.walk(path):
        for name in names:
            file = os.path.join(place, name)
            found[os.path.relpath(file, path)] = file
    return found


def link(source, target):
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.remove(path)


def read_marker(path):
    try:
        with open(os.path.join(path, OWN), encoding="utf-8") as file:
            found = json.load(file)
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def is_path(name):
    parts = name.split("/")
    try:
        long = len(name) > 1024 or any(len(os.fsencode(part)) > 255 for part in parts)
    except ValueError:
        return False
    return not long and "\0" not in name and not {"", ".", ".."} & set(parts)


class Manifest:
    def __init__(self, data):
        try:
            found = json.loads(data)
            self.nodes, self.token, self.files, self.single = found["nodes"], found["token"], {}, found["single"]
            for name, about in found["files"].items():
                self.files[name] = about["size"], about["sha256"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unusable("its manifest is not valid") from None
        numbers = [self.nodes, *(size for size, _ in self.files.values())]
        if not all(type(number) is int and 0 <= number <= MOST_BYTES for number in numbers):
            raise Unusable("its manifest has a size that is not valid")
        if not all(
            isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) for _, digest in self.files.values()
        ):
            raise Unusable("its manifest has a SHA-256 that is not valid")
        if len(self.files) > MOST_FILES or (self.single and len(self.files) != 1) or not 1 <= self.nodes <= MOST_FILES:
            raise Unusable("its manifest is not valid")
        for name in self.files:
            if not is_path(name) or (self.single and "/" in name):
                raise Unusable(f"its manifest has a path that is not valid: {name[:100]!r}")


class Store:
    def __init__(self, address, folder):
        bucket, _, prefix = address[len("s3://") :].partition("/")
        self.bucket = Bucket(bucket)
        self.prefix = "/".join(filter(None, [prefix.strip("/"), folder.strip("/")])) + "/"
        self.where = f"s3://{bucket}/{self.prefix}"

    def place(self, name, node):
        return f"{self.prefix}{name}/node-{node}/"

    def manifest_key(self, name, node):
        return f"{self.prefix}{MANIFESTS}{name}/node-{node}.json"

    def names(self):
        start, found = self.prefix + MANIFESTS, {}
        for key in self.bucket.list(start):
            match = re.fullmatch(r"([^/]{1,255})/node-(\d{1,6})\.json", key[len(start) :])
            if match and number_of(match[1]) >= 0:
                found.setdefault(match[1], set()).add(int(match[2]))
        return found

    def manifest(self, name, node, parts):
        if node not in parts:
            raise Incomplete(f"the part of node {node} is missing")
        try:
            return Manifest(self.bucket.read(self.manifest_key(name, node)))
        except Failed as error:
            if error.status not in (404, 416):
                raise
            raise Unusable(f"the manifest of node {node} cannot be read: {error}") from None

    def needed(self, name, parts):
        manifest = self.manifest(name, 0, parts)
        for node in range(manifest.nodes):
            if node not in parts:
                raise Incomplete(f"the part of node {node} is missing")
        return manifest

    def delete(self, name, parts):
        for node in sorted(parts):
            self.bucket.delete(self.manifest_key(name, node))
        for key in self.bucket.list(f"{self.prefix}{name}/"):
            self.bucket.delete(key)

    def download(self, name, parts, node, folder):
        first = self.needed(name, parts)
        manifests = {0: first}
        for other in range(1, first.nodes):
            manifests[other] = self.manifest(name, other, parts)
            if manifests[other].token != first.token:
                raise Incomplete(f"the part of node {other} is of another attempt")
        if first.nodes == 1 and node in parts and node:
            try:
                manifests[node] = self.manifest(name, node, parts)
            except Unusable as why:
                log(f"leaves out the files of node {node} in {self.where}{name}: {why}")
        files = {}
        for each in sorted(manifests, key=lambda other: (other == node, other == 0)):
            files |= {file: (each, *about) for file, about in manifests[each].files.items()}
        total = sum(size for _, size, _ in files.values())
        free = shutil.disk_usage(folder).free
        if total > free:
            raise DiskFailed(f"{self.where}{name} has {total} bytes, and {folder} has {free} left")
        made, target = os.path.join(folder, f".download-{name}"), os.path.join(folder, name)
        remove(made)
        for file, (each, size, digest) in files.items():
            path = made if first.single else os.path.join(made, file)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    found = self.bucket.download(self.place(name, each) + file, size, out)
            except Failed as error:
                if error.status not in (404, 416):
                    raise
                raise Unusable(f"{file} cannot be read: {error}") from None
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise Unusable(f"its manifest has a path that is not valid: {file[:100]!r}") from None
            if found != digest:
                raise Unusable(f"{file} is damaged: its SHA-256 is not that of the manifest")
        if first.nodes > 1 and os.path.exists(os.path.join(made, OWN)):
            marker = {**read_marker(made), "files": {file: size for file, (_, size, _) in files.items() if file != OWN}}
            marker.pop("nodes", None)
            with open(os.path.join(made, OWN), "w", encoding="utf-8") as out:
                json.dump(marker, out)
        why = fault(made)
        if why:
            raise Unusable(why)
        remove(target)
        os.rename(made, target)
        return target


class Uploads(threading.Thread):
    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.node = folder, count("JOB_COMPLETION_INDEX", 0)
        self.nodes, self.keep = count("TRAINER_NUM_NODES", 1), max(1, count("TRAINER_CHECKPOINT_KEEP", 3))
        self.grace = count("TRAINER_CHECKPOINT_GRACE", 300)
        self.store = Store(os.environ["TRAINER_CHECKPOINT_TO"], os.environ.get("TRAINER_CHECKPOINT_FOLDER", ""))
        self.ending, self.newest, self.present = threading.Event(), "", set()
        self.trying, self.sending, self.sent, self.hurries = "a checkpoint", "", {}, False
        self.unmarked, self.asked = "", 0.0
        self.seen, self.polled, self.why, self.since, self.pauses, self.reported = {}, 0.0, "", 0.0, 0, ""

    def restore(self):
        os.makedirs(self.folder, exist_ok=True)
        end = time.monotonic() + self.grace
        while True:
            try:
                return self.restore_newest()
            except (DiskFailed, OSError) as error:
                sys.exit(f"pulumi-trainer: no checkpoint can be restored from {self.store.where}: {error}")
            except Failed as error:
                if not error.again or time.monotonic() > end:
                    sys.exit(f"pulumi-trainer: the checkpoints in {self.store.where} cannot be used: {error}")
                log(f"the checkpoints in {self.store.where} cannot be used: {error}; tries again")
                time.sleep(POLL)

    def restore_newest(self):
        for name in os.listdir(self.folder):
            if name.startswith((".download-", ".upload-")):
                remove(os.path.join(self.folder, name))
        present = self.store.names()
        local, incomplete = newest(self.folder) if self.nodes == 1 else "", []
        for name in newest_first(present):
            if local and number_of(os.path.basename(local)) >= number_of(name):
                break
            try:
                path = self.store.download(name, present[name], self.node, self.folder)
            except Unusable as why:
                log(f"skips {self.store.where}{name}: {why}")
                incomplete += [name] if isinstance(why, Incomplete) else []
                continue
            finally:
                remove(os.path.join(self.folder, f".download-{name}"))
            log(f"resumes from {path}, as in {self.store.where}{name}")
            self.newest = name
            self.mark_uploaded(name)
            self.forget_later(present, path, [*present])
            return path
        # without any to go on from, another release may read those that this one cannot
        self.forget_later(present, local, [*present] if local else incomplete)
        if local and self.is_uploaded(os.path.basename(local)):
            self.newest = os.path.basename(local)
            self.mark_uploaded(self.newest)
        return local

    def mark_uploaded(self, name):
        made = os.path.join(self.folder, f"{UPLOADED}.part")
        try:
            with open(made, "w", encoding="utf-8") as file:
                file.write(name)
            os.replace(made, os.path.join(self.folder, UPLOADED))
        except OSError as error:
            log(f"status does not show that {name} is in {self.store.where}: {error.strerror}")

    def mark_if_whole(self):
        if not self.unmarked or self.node or self.hurries or time.monotonic() - self.asked < POLL:
            return
        self.asked = time.monotonic()
        try:
            self.store.needed(self.unmarked, self.store.names().get(self.unmarked, set()))
        except (Unusable, Failed):
            return
        self.mark_uploaded(self.unmarked)
        self.unmarked = ""

    def is_uploaded(self, name):
        if name not in self.present:
            return False
        path = os.path.join(self.folder, name)
        local = {file or name: os.path.getsize(each) for file, each in files_below(path).items()}
        try:
            manifest = self.store.manifest(name, self.node, {self.node})
        except Unusable:
            return False
        same = manifest.token == read_marker(path).get("token", "")
        return same and local == {file: size for file, (size, _) in manifest.files.items()}

    def forget_later(self, present, path, names):
        limit = number_of(os.path.basename(path)) if path else -1
        for name in newest_first(names) if self.node == 0 else ():
            if number_of(name) > limit:
                for node in sorted(present.pop(name)):
                    self.store.bucket.delete(self.store.manifest_key(name, node))
        for name in newest_first(os.listdir(self.folder)) if self.nodes > 1 else ():
            if number_of(name) > limit:
                remove(os.path.join(self.folder, name))
        self.present = {name for name in present if self.node in present[name]}

    def run(self):
        while True:
            ends = self.ending.is_set()
            try:
                name = self.find_next(ends)
                if name:
                    self.upload(name)
                    self.prune()
                elif ends:
                    return
                self.mark_if_whole()
                self.why, self.pauses = "", 0
                pause = 0 if name else PERIOD
            except Exception as error:
                self.since = self.since if self.why else time.monotonic()
                self.why, self.pauses = str(error), self.pauses + 1
                pause = min(LONGEST_PAUSE, PERIOD * 2**self.pauses)
                self.report()
            if self.ending.is_set():
                time.sleep(min(pause, PERIOD))
            else:
                self.ending.wait(pause)

    def report(self):
        name = self.trying
        if (name, self.why) != self.reported and not self.ending.is_set():
            self.reported = name, self.why
            newest = self.newest or "none"
            log(f"{name} is not in {self.store.where}: {self.why}; training goes on, the newest there is {newest}")

    def find_next(self, ends):
        names, limit = newest_first(os.listdir(self.folder)), number_of(self.newest) if self.newest else -1
        ready = [name for name in names if number_of(name) > limit and self.is_ready(name, ends)]
        if not ready or self.node == 0 or ends:
            return ready[0] if ready else ""
        if time.monotonic() - self.polled < POLL:
            return ""
        self.trying, self.polled = ready[0], time.monotonic()
        present = self.store.names()
        return next((name for name in ready if 0 in present.get(name, ())), "")

    def is_ready(self, name, ends):
        path = os.path.join(self.folder, name)
        whole = not fault(path, part=True)
        if os.path.exists(os.path.join(path, OWN)):
            return whole
        if not whole and self.node == 0:
            return False
        try:
            state = {file: os.stat(each).st_mtime_ns for file, each in files_below(path).items()}
        except OSError:
            return False
        before, since = self.seen.get(name, (None, 0.0))
        if state != before:
            since = time.monotonic()
            self.seen[name] = state, since
        return bool(state) and (ends or time.monotonic() - since >= SETTLED)

    def upload(self, name):
        began = time.monotonic()
        path, made = os.path.join(self.folder, name), os.path.join(self.folder, f".upload-{name}")
        self.trying = name
        if name != self.sending:
            self.sending, self.sent = name, {}
            for other in os.listdir(self.folder):
                if other.startswith(".upload-"):
                    remove(os.path.join(self.folder, other))
            try:
                shutil.copytree(path, made, copy_function=link) if os.path.isdir(path) else link(path, made)
            except OSError:
                remove(made)
        source = made if os.path.lexists(made) else path
        found, single = files_below(source), not os.path.isdir(source)
        names = {os.path.basename(file) for file in found}
        marker = read_marker(source)
        if (marker or self.node == 0) and fault(source, part=True):
            raise OSError(f"it has changed: {fault(source, part=True)}")
        sharded = names & SHARDED or any(each.startswith(SHARDS) for each in names)
        needed = self.nodes if sharded else 1
        nodes = marker.get("nodes", 1) if marker else needed
        if name in self.present:
            self.store.bucket.delete(self.store.manifest_key(name, self.node))
            self.present.discard(name)
        files = {file or name: each for file, each in found.items()}
        for file in sorted(files, key=lambda each: os.path.getsize(files[each])):
            if file not in self.sent:
                self.sent[file] = self.store.bucket.upload(self.store.place(name, self.node) + file, files[file])
        size = sum(each["size"] for each in self.sent.values())
        text = {"nodes": nodes, "token": marker.get("token", ""), "single": single, "files": self.sent}
        self.store.bucket.write(self.store.manifest_key(name, self.node), json.dumps(text).encode())
        self.sending, self.sent = "", {}
        self.newest, self.unmarked = name, name if nodes > 1 else ""
        if nodes == 1:
            self.mark_uploaded(name)
        self.present.add(name)
        remove(made)
        seconds = time.monotonic() - began
        log(f"{name} is in {self.store.where} ({size / 1e6:.1f} MB, {seconds:.1f} s)")

    def prune(self):
        if self.node:
            return
        try:
            present, complete = self.store.names(), []
            limit = number_of(self.newest)  # above it are those that this training could not go on from
            for name in newest_first(present):
                if number_of(name) > limit:
                    continue
                try:
                    self.store.needed(name, present[name])
                    complete.append(name)
                except Unusable:
                    pass
                if len(complete) == self.keep:
                    break
            if len(complete) < self.keep:
                return
            for key in self.store.bucket.list(self.store.prefix, "/"):
                present.setdefault(key[len(self.store.prefix) :].rstrip("/"), set())
            for name in newest_first(present):
                if self.hurries:
                    return
                if number_of(name) < number_of(complete[-1]):
                    self.store.delete(name, present[name])
        except Failed as error:
            log(f"old checkpoints stay in {self.store.where}: {error}")

    def finish(self, stopped):
        self.ending.set()
        began = time.monotonic()
        while self.is_alive():
            self.join(0.1)
            now, self.hurries = time.monotonic(), bool(stopped())
            late = stopped() and now - stopped() > self.grace + RESERVE
            if late or (self.why and now - max(began, self.since) > self.grace):
                why = self.why or "the grace period is over"
                return f"{self.trying} is not in {self.store.where}: {why}; the newest there is {self.newest or 'none'}"
        return ""
