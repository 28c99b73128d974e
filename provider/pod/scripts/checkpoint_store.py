import json, os, re, shutil, sys, time

from find_checkpoint import OWN, fault, number_of
from s3 import Bucket, DiskFailed, Failed

MANIFESTS = "manifests/"
OWNER = "owner.json"
READS = 3
MOST_FILES = 100_000
MOST_BYTES = 1 << 50


class Unusable(Exception):
    pass


class Incomplete(Unusable):
    pass


def log(text):
    print(f"pulumi-trainer: {text}", file=sys.stderr, flush=True)


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
