import json, os, re, secrets, shutil, sys, threading, time

from checkpoint_store import MANIFESTS, Store, Unusable, log, read_marker, remove
from find_checkpoint import FINISHED, OWN, UPLOADED, fault, missing_fork, newest, newest_first, number_of
from run_program import own_node
from s3 import DiskFailed, Failed, words

PERIOD = 1
POLL = 5
SETTLED = 3
QUIET = 60
LONGEST_PAUSE = 60
RESERVE = 8
SHARDED = {".metadata", "_CHECKPOINT_METADATA"}
SHARDS = ("zero_pp_rank_", "bf16_zero_pp_rank_")


class Taken(Exception):
    pass


class Waiting(Failed):
    pass


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


def state_of(path):
    marker = os.path.join(path, OWN)
    files = {OWN: marker} if os.path.exists(marker) else files_below(path)
    return {file: os.stat(each).st_mtime_ns for file, each in files.items()}


def is_written(state, before):
    is_deleted = OWN in before and OWN not in state
    return bool(state.items() - before.items()) and not is_deleted


class Seen:
    def __init__(self, state, order):
        self.state, self.order, self.since = state, order, time.monotonic()


class Uploads(threading.Thread):
    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.node = folder, own_node()
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
        names = {*map(os.path.basename, found)}
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
