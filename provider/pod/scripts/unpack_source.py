import fcntl, gzip, hashlib, json, os, shutil, sys, tarfile, zlib


def refuse(found: str) -> None:
    hint = "`pulumi-trainer rerun` sends it again, and so does `pulumi up` with another run= key"
    if "address" in launch:
        hint = "delete it there; then " + hint
    where, wanted = launch.get("address", here + "/source.tar.gz"), launch["source"][:12]
    sys.exit(
        f"pulumi-trainer: the project in {where} is not what was sent: expected {wanted}, found {found}. Hint: {hint}"
    )


class Counted(gzip.GzipFile):
    """An archive that is refused where it has more bytes than what was sent: a header of tar may claim any number of them."""

    read_bytes = -tarfile.RECORDSIZE

    def read(self, size: "int | None" = -1) -> bytes:
        most = launch.get("limit", 1 << 40) - self.read_bytes
        data = super().read(most + 1 if size is None or size < 0 else min(size, most + 1))
        self.read_bytes += len(data)
        if len(data) > most:
            refuse(f"more than {launch['limit']} bytes")
        return data


here = os.path.dirname(__file__)
launch = json.load(open(here + "/launch.json"))
lock = open(here + "/launch.json")
fcntl.flock(lock, fcntl.LOCK_EX)
place = os.path.join(launch["folder"], "project")
if not os.path.isdir(place):
    try:
        archive = here + "/source.tar.gz"
        if "address" in launch and not os.path.exists(archive):
            archive = place + ".tar.gz"
            __import__("fetch_source").fetch(launch["address"], archive, launch["limit"])
        found, files, limit = hashlib.sha256(), [], launch.get("limit", 1 << 40)
        with Counted(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
            for entry in tar:
                limit -= entry.size
                if limit < 0:
                    refuse(f"more than {launch['limit']} bytes")
                if not entry.isreg():
                    refuse(f"{entry.name}, which is not a regular file")
                files.append((entry.name, entry.mode, tar.extractfile(entry).read()))  # type: ignore
        for name, mode, data in files:
            found.update(f"{hashlib.sha256(data).hexdigest()} {mode >> 6 & 1} {name}\n".encode())
        if found.hexdigest() != launch["source"]:
            refuse(found.hexdigest()[:12])
        shutil.rmtree(place + ".part", ignore_errors=True)
        for name, mode, data in files:
            path = os.path.join(place + ".part", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, mode)
        os.rename(place + ".part", place)
    except (EOFError, tarfile.TarError, zlib.error):
        refuse("a damaged archive")
    except OSError as error:
        if error.errno is None:
            refuse("a damaged archive")
        sys.exit(f"pulumi-trainer: the project cannot be unpacked to {place}: {error.strerror or error}")
lock.close()
os.chdir(place)
folders = [os.path.join(place, folder) for folder in launch["path"]]
os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
