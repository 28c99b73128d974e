import atexit, os, select, sys, threading, time

CHUNK = 1 << 16
INTERVAL = 0.2
COPY_SECONDS = 5
kept: list = []


class Log:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        self.missing = 0
        self.write(
            time.strftime("pulumi-trainer: the container started at %Y-%m-%d %H:%M:%S UTC\n", time.gmtime()).encode()
        )

    def write(self, data):
        try:
            if self.missing:
                put(self.file, b"\npulumi-trainer: %d bytes of output are missing: no space\n" % self.missing)
                self.missing = 0
            put(self.file, data)
        except OSError:
            self.missing += len(data)


class Stream:
    def __init__(self, numbers, log):
        self.numbers, self.log, self.rest = numbers, log, b""
        self.original = os.dup(numbers[0])
        self.pipe, end = os.pipe()
        for number in numbers:
            os.dup2(end, number)
        os.close(end)

    def restore(self):
        for number in self.numbers:
            os.dup2(self.original, number)

    def read(self):
        data = os.read(self.pipe, CHUNK)
        try:
            put(self.original, data)
        except OSError:
            pass
        lines, newline, self.rest = (self.rest + data).rpartition(b"\n")
        self.log.write(lines + newline)
        if not data or len(self.rest) > CHUNK:
            self.log.write(self.rest)
            self.rest = b""
        return data


def put(number, data):
    while data:
        data = data[os.write(number, data) :]


def pump(streams, ended):
    left = {stream.pipe: stream for stream in streams}
    while left:
        ready = select.select([*left], [], [], INTERVAL)[0]
        for pipe in ready:
            if not left[pipe].read():
                del left[pipe]
        if not ready and ended.is_set():
            break
    for stream in left.values():
        stream.log.write(stream.rest)


def is_one_file():
    return os.path.samestat(os.fstat(1), os.fstat(2))


def start(folder):
    if not os.path.isdir(os.path.dirname(folder)):
        return
    own = os.path.join(folder, os.path.basename(os.environ.get("TRAINER_RUN_ID", "")))
    name = os.path.basename(os.environ.get("HOSTNAME") or os.uname().nodename)
    try:
        os.makedirs(own, exist_ok=True)
        log = Log(os.path.join(own, name + ".log"))
    except OSError as error:
        print(f"pulumi-trainer: the log is not kept in {own}: {error.strerror}", file=sys.stderr, flush=True)
        return
    streams = [Stream(numbers, log) for numbers in ([(1, 2)] if is_one_file() else [(1,), (2,)])]
    ended = threading.Event()
    thread = threading.Thread(target=pump, args=(streams, ended), daemon=True)
    thread.start()
    kept.append((streams, ended, thread))
    atexit.register(finish)


def finish():
    while kept:
        streams, ended, thread = kept.pop()
        sys.stdout.flush()
        sys.stderr.flush()
        for stream in streams:
            stream.restore()
        ended.set()
        thread.join(COPY_SECONDS)
