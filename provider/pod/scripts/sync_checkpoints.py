import json, os, re, secrets, shutil, sys, threading, time

from find_checkpoint import FINISHED, OWN, UPLOADED, fault, missing_fork, newest, newest_first, number_of
from s3 import Bucket, DiskFailed, Failed, words

MANIFESTS = "manifests/"
OWNER = "owner.json"
READS = 3
MOST_FILES = 100_000
MOST_BYTES = 1 << 50
PERIOD = 1
POLL = 5
SETTLED = 3
QUIET = 60
LONGEST_PAUSE = 60
RESERVE = 8
SHARDED = {".metadata", "_CHECKPOINT_METADATA"}
SHARDS = ("zero_pp_rank_", "bf16_zero_pp_rank_")


class Unusable(Exception):
    pass


class Incomplete(Unusable):
    pass


class Taken(Exception):
    pass


class Waiting(Failed):
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


def read_again(read):
    for _ in range(READS - 1):  # a byte may have changed on its way
        try:
            return read()
        except Incomplete:
            raise
        except Unusable:
            pass
    return read()


def state_of(path):
    marker = os.path.join(path, OWN)
    files = {OWN: marker} if os.path.exists(marker) else files_below(path)
    return {file: os.stat(each).st_mtime_ns for file, each in files.items()}


def is_written(state, before):
    is_deleted = OWN in before and OWN not in state
    return bool(state.items() - before.items()) and not is_deleted


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
            self.attempt, self.folder = found.get("attempt", ""), found.get("folder", "")
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
        if not isinstance(self.folder, str) or not re.fullmatch("[\\w-]*", self.folder):
            raise Unusable("its manifest has a folder that is not valid")
        for name in self.files:
            if not is_path(name) or (self.single and "/" in name):
                raise Unusable(f"its manifest has a path that is not valid: {name[:100]!r}")


class Store:
    def __init__(self, address, folder):
        bucket, _, prefix = address[len("s3://") :].partition("/")
        self.bucket = Bucket(bucket)
        self.prefix = "/".join(filter(None, [prefix.strip("/"), folder.strip("/")])) + "/"
        self.where = f"s3://{bucket}/{self.prefix}"
        self.job = self.prefix[:-1].rpartition("/")[0] + "/"  # the folder of a lineage is below that of its job

    def place(self, name, part):
        return f"{self.prefix}{name}/{part}/"

    def manifest_key(self, name, node):
        return f"{self.prefix}{MANIFESTS}{name}/node-{node}.json"

    def names(self):
        start = self.prefix + MANIFESTS
        found: dict = {}
        for key in self.bucket.list(start):
            match = re.fullmatch(r"([^/]{1,255})/node-(\d{1,6})\.json", key[len(start) :])
            if match and number_of(match[1]) >= 0:
                found.setdefault(match[1], set()).add(int(match[2]))
        return found

    def read_owner(self):
        try:
            found = json.loads(self.bucket.read(self.job + OWNER, 1 << 16))
        except Failed as error:
            if error.status != 404:
                raise
            return {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Failed(f"{self.job}{OWNER} is not valid JSON")
        return found

    def write_owner(self, owner, attempt):
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = json.dumps({"owner": owner, "attempt": attempt, "since": since})
        self.bucket.write(self.job + OWNER, text.encode())

    def manifest(self, name, node, parts):
        if node not in parts:
            raise Incomplete(f"the part of node {node} is missing")
        return read_again(lambda: self.read_manifest(name, node))

    def read_manifest(self, name, node):
        try:
            return Manifest(self.bucket.read(self.manifest_key(name, node)))
        except Failed as error:
            if error.status not in (404, 416):
                raise
            raise Unusable(f"the manifest of node {node} cannot be read: {error}") from None

    def manifests(self, name, parts):
        first = self.manifest(name, 0, parts)
        missing = [node for node in range(first.nodes) if node not in parts]
        if missing:
            raise Incomplete(f"the part of node {missing[0]} is missing")
        found = {0: first}
        for node in range(1, first.nodes):
            found[node] = self.manifest(name, node, parts)
            if (found[node].token, found[node].attempt) != (first.token, first.attempt):
                raise Incomplete(f"the part of node {node} is of another attempt")
        return found

    def delete(self, name, parts):
        for node in sorted(parts):
            self.bucket.delete(self.manifest_key(name, node))
        for key in self.bucket.list(f"{self.prefix}{name}/"):
            self.bucket.delete(key)

    def download(self, name, parts, node, folder):
        manifests = self.manifests(name, parts)
        first = manifests[0]
        if node not in manifests and node in parts:
            try:
                manifests[node] = self.manifest(name, node, parts)
                if manifests[node].attempt != first.attempt:
                    del manifests[node]
                    raise Incomplete("they are of another attempt")
            except Unusable as why:
                log(f"leaves out the files of node {node} in {self.where}{name}: {why}")
        files: dict = {}
        for each in sorted(manifests, key=lambda other: (other == node, other == 0)):
            place = self.place(name, manifests[each].folder or f"node-{each}")
            files |= {file: (place + file, *about) for file, about in manifests[each].files.items()}
        total = sum(size for _, size, _ in files.values())
        free = shutil.disk_usage(folder).free
        if total > free:
            raise DiskFailed(f"{self.where}{name} has {total} bytes, and {folder} has {free} left")
        made, target = os.path.join(folder, f".download-{name}"), os.path.join(folder, name)
        remove(made)
        for file, about in files.items():
            path = made if first.single else os.path.join(made, file)
            read_again(lambda file=file, path=path, about=about: self.download_file(file, path, *about))
        if first.nodes > 1 and os.path.exists(os.path.join(made, OWN)):
            parts = {file: about for file, about in files.items() if file != OWN}
            marker = {**read_marker(made), "files": {file: size for file, (_, size, _) in parts.items()}}
            marker["sha256"] = {file: digest for file, (*_, digest) in parts.items()}
            marker.pop("nodes", None)
            with open(os.path.join(made, OWN), "w", encoding="utf-8") as out:
                json.dump(marker, out)
        wrong = fault(made)
        if wrong:
            raise Unusable(wrong)
        remove(target)
        os.rename(made, target)
        return target

    def download_file(self, file, path, key, size, digest):
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                found = self.bucket.download(key, size, out)
        except Failed as error:
            if error.status not in (404, 416):
                raise
            raise Unusable(f"{file} cannot be read: {error}") from None
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise Unusable(f"its manifest has a path that is not valid: {file[:100]!r}") from None
        if found != digest:
            raise Unusable(f"{file} is damaged: its SHA-256 is not that of the manifest")


class Seen:
    def __init__(self, state, order):
        self.state, self.order, self.since = state, order, time.monotonic()


class Uploads(threading.Thread):
    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.node = folder, count("JOB_COMPLETION_INDEX", 0)
        self.nodes, self.keep = count("TRAINER_NUM_NODES", 1), max(1, count("TRAINER_CHECKPOINT_KEEP", 3))
        self.grace = count("TRAINER_CHECKPOINT_GRACE", 300)
        self.store = Store(os.environ["TRAINER_CHECKPOINT_TO"], os.environ.get("TRAINER_CHECKPOINT_FOLDER", ""))
        self.owner, self.attempt = (os.environ.get(f"TRAINER_CHECKPOINT_{name}", "") for name in ("OWNER", "ATTEMPT"))
        if self.owner and self.node == 0:  # a Job that was suspended starts its Pods again
            self.attempt += f"/{secrets.token_hex(4)}"
        self.adopts, self.taken, self.when_taken = bool(os.environ.get("TRAINER_CHECKPOINT_ADOPT")), "", lambda: None
        self.incomplete = ""
        self.ending, self.newest, self.restored, self.present = threading.Event(), "", "", set()
        self.trying, self.sending, self.part, self.sent, self.hurries = "a checkpoint", ("", 0), "", {}, False
        outdated = os.environ.get("TRAINER_CHECKPOINT_REMOVE", "").split(",") if self.owner else []
        self.outdated = [name for name in outdated if re.fullmatch("[0-9a-z]{1,16}", name)]
        self.unmarked, self.asked, self.whole = "", 0.0, set()
        self.seen, self.order, self.sent_order = {}, 0, 0
        self.polled, self.why, self.since, self.pauses, self.reported = 0.0, "", 0.0, 0, ("", "")

    def restore(self):
        os.makedirs(self.folder, exist_ok=True)
        return self.read_patiently(lambda: (self.claim(), self.restore_newest())[1])

    def fork(self, folder, step):
        origin = Store(os.environ["TRAINER_CHECKPOINT_TO"], folder)
        return self.read_patiently(lambda: self.restore_fork(origin, step))

    def restore_fork(self, origin, step):
        present, made = origin.names(), os.path.join(self.folder, ".fork")  # no checkpoint of this lineage
        remove(made)
        os.makedirs(made)
        for name in newest_first(name for name in present if step in ("", str(number_of(name)))):
            try:
                path = origin.download(name, present[name], self.node, made)
            except Unusable as why:
                log(f"skips {origin.where}{name}: {why}")
                continue
            log(f"starts from {path}, as in {origin.where}{name}")
            return path
        sys.exit(missing_fork(origin.where, step, present))

    def read_patiently(self, read):
        end = time.monotonic() + self.grace
        while True:
            try:
                return read()
            except Taken as why:
                sys.exit(f"pulumi-trainer: {why}")
            except (DiskFailed, OSError) as error:
                sys.exit(f"pulumi-trainer: no checkpoint can be restored from {self.store.where}: {error}")
            except Failed as error:
                if not error.again or time.monotonic() > end:
                    sys.exit(f"pulumi-trainer: the checkpoints in {self.store.where} cannot be used: {error}")
                log(f"the checkpoints in {self.store.where} cannot be used: {error}; tries again")
                time.sleep(POLL)

    def claim(self):
        found = self.store.read_owner() if self.owner else {}
        if found and not self.is_own(found) and not self.adopts:
            where = f"s3://{self.store.bucket.name}/{self.store.job}"
            raise Taken(
                f"{where} belongs to {self.called(found)}: nothing is read or written there\n"
                "Hint: give CheckpointPolicy another to=, or take the folder over with adopt=True on the TrainJob,"
                " as after `pulumi destroy`"
            )
        if self.owner and self.node == 0:
            self.store.write_owner(self.owner, self.attempt)

    def is_own(self, found):
        random = self.owner.rpartition("/")[2]
        return str(found.get("owner", "")).rpartition("/")[2] == random

    def called(self, found):
        stack, own = (str(owner).rpartition("/")[0] for owner in (found.get("owner", ""), self.owner))
        if stack == own:
            return "another stack of this name: in another backend, or destroyed since"
        return f"the stack {stack[:300]!r}"

    def check_turn(self):
        if not self.owner:
            return self.attempt
        found = self.store.read_owner()
        if not found and self.node == 0:  # somebody has deleted it
            self.store.write_owner(self.owner, self.attempt)
            return self.attempt
        attempt = str(found.get("attempt"))
        started = attempt if self.node == 0 else attempt.partition("/")[0]
        if found and self.is_own(found) and started == self.attempt:
            return attempt
        if self.node:
            raise Waiting("in this attempt, the node with number 0 has not started", True)
        where, since = self.store.where, words(str(found.get("since")))[:30]
        if self.is_own(found):
            raise Taken(f"another attempt of the job saves in {where} since {since}; this one ends")
        raise Taken(f"{where} belongs to {self.called(found)} since {since}; this job ends")

    def restore_newest(self):
        for name in os.listdir(self.folder):
            if name.startswith((".download-", ".upload-")):
                remove(os.path.join(self.folder, name))
        present = self.store.names()
        self.present = {name for name in present if self.node in present[name]}
        local = newest(self.folder) if self.nodes == 1 else ""
        path, name = local, os.path.basename(local)
        for each in newest_first(present):
            if local and number_of(name) >= number_of(each):
                break
            try:
                path, name = self.store.download(each, present[each], self.node, self.folder), each
            except Unusable as why:
                log(f"skips {self.store.where}{each}: {why}")
                continue
            finally:
                remove(os.path.join(self.folder, f".download-{each}"))
            log(f"resumes from {path}, as in {self.store.where}{each}")
            break
        if self.nodes > 1:
            self.remove_later(number_of(name) if path else -1)
        is_there = bool(path) and (path != local or self.is_uploaded(name))
        self.forget_present("" if is_there else name)
        if is_there:
            self.newest = self.restored = name
            self.mark_uploaded(name)
        return path

    def remove_later(self, limit):
        for name in newest_first(os.listdir(self.folder)):
            if number_of(name) > limit:
                remove(os.path.join(self.folder, name))

    def forget_present(self, unsent):
        self.look()
        for name, seen in self.seen.items():
            seen.order = int(name == unsent)
        self.order, self.sent_order = 1, 0

    def look(self):
        found = {}
        for name in newest_first(os.listdir(self.folder))[::-1]:
            try:
                state, before = state_of(os.path.join(self.folder, name)), self.seen.get(name)
            except OSError:
                continue
            if before is None or is_written(state, before.state):
                self.order += 1
                found[name] = Seen(state, self.order)
            elif state != before.state:
                found[name] = Seen(state, before.order)
            else:
                found[name] = before
        self.seen = found

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
            self.store.manifests(self.unmarked, self.store.names().get(self.unmarked, set()))
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

    def run(self):
        while True:
            ends = self.ending.is_set()
            try:
                name = self.find_next(ends)
                if name:
                    order = self.seen[name].order
                    self.upload(name)
                    self.sent_order = order
                    self.prune()
                    self.remove_outdated()
                else:
                    self.incomplete = self.find_incomplete(ends)
                    if ends:
                        self.name_others()
                        return
                self.mark_if_whole()
                self.why, self.pauses = "", 0
                pause = 0 if name else PERIOD
            except Taken as why:
                self.taken = str(why)
                self.when_taken()
                return
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
        self.look()
        unsent = [name for name, seen in self.seen.items() if seen.order > self.sent_order]
        ready = [name for name in unsent if self.is_ready(name, ends)]
        ready.sort(key=lambda name: -self.seen[name].order)
        if not ready or self.node == 0 or ends:
            return ready[0] if ready else ""
        if time.monotonic() - self.polled < POLL:
            return ""
        self.trying, self.polled = ready[0], time.monotonic()
        present = self.store.names()
        return next((name for name in ready if self.is_begun(name, present.get(name, set()))), "")

    def find_incomplete(self, ends):
        unsent = {name: seen for name, seen in self.seen.items() if seen.order > self.sent_order and seen.state}
        name = max(unsent, key=lambda each: unsent[each].order, default="")
        path = os.path.join(self.folder, name)
        why = fault(path, part=True) if name and os.path.getsize(path) else ""
        if not why or not (ends or time.monotonic() - unsent[name].since > QUIET):
            return ""
        found = f"{name} is not in {self.store.where}: {why} (a folder needs {OWN}, or {' or '.join(sorted(FINISHED))})"
        found += f"; the newest there is {self.newest or 'none'}"
        if not ends and found != self.incomplete:
            log(found)
        return found

    def name_others(self):
        others = [
            name
            for name in sorted(os.listdir(self.folder))
            if number_of(name) < 0 and name[0] != "." and "tmp" not in name
        ]
        if others:
            log(f"not uploaded, since their names do not end in a number: {', '.join(others[:5])[:500]}")

    def is_begun(self, name, parts):
        try:
            return self.store.manifest(name, 0, parts).attempt == self.check_turn()
        except (Unusable, Waiting):
            return False

    def is_ready(self, name, ends):
        path, seen = os.path.join(self.folder, name), self.seen[name]
        whole = not fault(path, part=True)
        if OWN in seen.state:
            return whole
        if not whole and self.node == 0:
            return False
        return bool(seen.state) and (ends or time.monotonic() - seen.since >= SETTLED)

    def upload(self, name):
        began = time.monotonic()
        path, made = os.path.join(self.folder, name), os.path.join(self.folder, f".upload-{name}")
        self.trying = name
        saved = name, self.seen[name].order if name in self.seen else 0
        if saved != self.sending:
            self.sending, self.sent, self.part = saved, {}, f"node-{self.node}"
            if self.owner or name in self.present:  # other files of this name stay until all of these are there
                self.part += f"-{secrets.token_hex(4)}"
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
        files, wanted = {file or name: each for file, each in found.items()}, marker.get("sha256") or {}
        for file in sorted(files, key=lambda each: os.path.getsize(files[each])):
            if file not in self.sent:
                self.sent[file] = self.store.bucket.upload(self.store.place(name, self.part) + file, files[file])
            if self.sent[file]["sha256"] != wanted.get(file, self.sent[file]["sha256"]):
                raise OSError(f"{file} is damaged: its SHA-256 is not that of {OWN}")
        size = sum(each["size"] for each in self.sent.values())
        text = {"nodes": nodes, "token": marker.get("token", ""), "single": single, "files": self.sent}
        text |= {"attempt": self.check_turn(), "folder": self.part}
        self.store.bucket.write(self.store.manifest_key(name, self.node), json.dumps(text).encode())
        self.sending, self.sent = ("", 0), {}
        self.whole.discard(name)
        self.report_restart(name)
        self.newest, self.unmarked = name, name if nodes > 1 else ""
        if nodes == 1:
            self.mark_uploaded(name)
        if name in self.present:
            self.delete_replaced(name)
        self.present.add(name)
        remove(made)
        seconds = time.monotonic() - began
        log(f"{name} is in {self.store.where} ({size / 1e6:.1f} MB, {seconds:.1f} s)")

    def report_restart(self, name):
        if self.restored and number_of(name) <= number_of(self.restored):
            log(
                f"the program has saved {name} and has not continued from {self.restored}, which stays in {self.store.where};"
                " the next attempt finds the higher number first.\n"
                "Hint: load TRAINER_RESUME_FROM, or set resume=False on the TrainJob, which then gets a folder of its own"
            )
            self.restored = ""

    def delete_replaced(self, name):
        start = f"{self.store.prefix}{name}/"
        try:
            for key in self.store.bucket.list(start):
                part = key[len(start) :].partition("/")[0]
                if re.fullmatch(rf"node-{self.node}(-[0-9a-f]+)?", part) and part != self.part:
                    self.store.bucket.delete(key)
        except Failed as error:
            log(f"replaced files stay in {self.store.where}{name}: {error}")

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
                    if name not in self.whole:
                        self.store.manifests(name, present[name])
                        self.whole.add(name)
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

    def remove_outdated(self):
        while self.outdated and not self.node and not self.hurries:
            folder = f"{self.store.job}{self.outdated[0]}/"
            try:
                for key in sorted(self.store.bucket.list(folder), key=lambda key: f"/{MANIFESTS}" not in key):
                    self.store.bucket.delete(key)
                log(f"s3://{self.store.bucket.name}/{folder} was removed (keep_runs)")
            except Failed as error:
                log(f"s3://{self.store.bucket.name}/{folder} stays: {error}")
            del self.outdated[0]

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
        return self.taken or self.incomplete
