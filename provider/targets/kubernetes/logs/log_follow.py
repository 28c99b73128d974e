"""Follows the logs of a job until the job has ended and everything is read.

New Pods are attached to as they start; after restarts and broken connections, reading continues at the last line. One thread
reads each log up to `AT_ONCE`; a few threads read the others in turns.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pulumi_trainer.provider.kubernetes.cache.reflector import Stream
from pulumi_trainer.provider.kubernetes.client.api_resources import POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import Line, Position
from pulumi_trainer.provider.targets.kubernetes.logs.log_sources import Document, Source, newest_pods, sources, trim_pod
from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import (
    AT_ONCE,
    LogSelection,
    Positions,
    last_time,
    read_log,
)
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

TURNS = 4
"""Threads that read in turns the logs above `AT_ONCE`."""
TURN_SECONDS = 2.0
"""Seconds between two turns of a log."""
AGAIN = 0.5, 4.0
"""Least and most seconds until a stopped log is opened again, unless its pod changes; doubled while nothing comes."""
LAST_SECONDS = 90.0
"""Seconds after the end of the job in which its containers may end."""
ENDING_SECONDS = 3.0
"""Seconds that a followed log may stay open after its container has ended: a kubelet closes it after a second."""
TRIES = 10
"""How often a log is read again if its last line does not arrive."""
_WAITING = 512
"""Number of lines that wait to be printed; slow printing slows the reading down."""


@dataclass
class _Log:
    """One container whose log is read.

    Args:
        at: Restart count of the run that is being read.
        selection: Limits of the first request, if lines were read before.
        settled: Position before the last request.
        first: Time of the first new line of the last request.
        read: Restart count of the last ended run that was read completely.
    """

    source: Source
    position: Position
    at: int = 0
    selection: LogSelection | None = None
    settled: Position = field(default_factory=Position)
    first: int = 0
    read: int = -1
    busy: bool = False
    gone: bool = False
    ended: float = 0.0
    shut: Callable[[], None] | None = None
    changed: threading.Event = field(default_factory=threading.Event)

    @property
    def due(self) -> bool:
        return self.source.started and not self.gone and self.read < self.source.restarts


class LogFollower:
    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        selection: LogSelection,
        positions: Positions,
        note: Callable[[str], None],
    ) -> None:
        self._client, self._namespace, self._name, self._selection = client, namespace, name, selection
        self._positions, self._note = positions, note
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._over = threading.Event()
        self._queue: queue.Queue[Line | Exception | None] = queue.Queue(_WAITING)
        self._turns: queue.Queue[tuple[float, _Log]] = queue.Queue()
        self._pods: dict[str, Document] = {}
        self._logs: dict[tuple[str, str], _Log] = {}
        self._reading = self._workers = 0
        self._troubled = -10.0

    def lines(self, pods: list[Document]) -> Iterator[Line]:
        """Yield lines as they are printed."""
        for pod in newest_pods(pods):
            self._pods[pod["metadata"]["uid"]] = pod
        if not self._selection.earlier:
            chosen = set(self._pods)
            for pod in pods:  # earlier attempts
                if pod["metadata"]["uid"] not in chosen:
                    for source in sources(pod):
                        self._logs[source.key] = _Log(source, Position(), gone=True)
        for pod in pods:
            self._observe_pod(pod)
        self._watch(POD, labels=self._selection.labels(self._name))
        self._watch(self._main(), fields=f"metadata.name={self._name}")
        try:
            yield from self._merged_lines()
        finally:
            self._stop.set()

    def _main(self) -> Kind:
        """Return the kind whose status has the job's end: the JobSet if TrainJobs may not be read."""
        try:
            found = self._client.get(TRAIN_JOB, self._namespace, self._name)
        except ApiError as error:
            if error.code != 403:
                raise
            found = None
        return TRAIN_JOB if found is not None else JOBSET

    def _merged_lines(self) -> Iterator[Line]:
        deadline = looked = 0.0
        while True:
            if time.monotonic() > looked + 1:
                looked = time.monotonic()
                self._end_streams(looked)
            try:
                item = self._queue.get(timeout=0.2)
            except queue.Empty:
                item = None
            if isinstance(item, Exception):
                raise item
            if item is not None:
                yield item
                continue
            if self._over.is_set():
                if not deadline:
                    deadline = time.monotonic() + LAST_SECONDS
                    labels = self._selection.labels(self._name)  # the watch may be late
                    self._pods_listed(self._client.list(POD, self._namespace, labels=labels, keep=trim_pod)[0])
                with self._lock:
                    left = any(log.busy or log.due for log in self._logs.values())
                if (not left and self._queue.empty()) or time.monotonic() > deadline:
                    return

    def _end_streams(self, now: float) -> None:
        """Close streams whose container has ended but that stay open."""
        with self._lock:
            late = [log for log in self._logs.values() if log.busy and log.ended and now > log.ended + ENDING_SECONDS]
            shuts = [log.shut for log in late]
        for shut in filter(None, shuts):
            shut()

    def _start_thread(self, what: Callable[[], None]) -> None:
        def run() -> None:
            try:
                what()
            except Exception as fault:  # any: without this thread, the reader would wait forever
                self._put(fault)

        threading.Thread(target=run, name="logs", daemon=True).start()

    def _put(self, item: Line | Exception) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=1.0)
                return

    # --- watches ----------------------------------------------------------------------------------------------------

    def _watch(self, kind: Kind, *, labels: str = "", fields: str = "") -> None:
        keep = trim_pod if kind is POD else _outcome
        changed = self._pod_changed if kind is POD else self._job_changed
        listed = self._pods_listed if kind is POD else self._job_listed
        stream = Stream(
            self._client, kind, self._namespace, labels=labels, fields=fields,
            keep=keep, listed=listed, changed=changed, faulty=self._faulty,
        )  # fmt: skip
        self._start_thread(lambda: stream.run(self._stop))

    def _pods_listed(self, found: list[Document]) -> None:
        for each in found:
            self._observe_pod(each)
        there = {each["metadata"]["uid"] for each in found}
        for uid in [uid for uid in self._pods if uid not in there]:
            self._observe_pod(self._pods[uid], gone=True)

    def _pod_changed(self, type_: str, pod: Document) -> None:
        self._observe_pod(pod, gone=type_ == "DELETED")

    def _job_listed(self, found: list[Document]) -> None:
        if not found or found[0]["over"]:
            self._over.set()

    def _job_changed(self, type_: str, job: Document) -> None:
        if type_ == "DELETED" or job["over"]:
            self._over.set()

    def _faulty(self, stream: Stream) -> None:
        """Handle a watch that fails or recovers."""
        if stream.fault is None:
            return
        fault, _ = stream.fault
        if stream.absent and stream.kind is TRAIN_JOB:
            self._watch(JOBSET, fields=f"metadata.name={self._name}")
        elif stream.absent:  # no permission (any more), or no such kind
            self._put(fault)
        else:
            self._trouble(fault)

    def _observe_pod(self, pod: Document, *, gone: bool = False) -> None:
        with self._lock:
            uid = pod["metadata"]["uid"]
            self._pods[uid] = pod
            if gone:
                del self._pods[uid]
            for source in sources(pod):
                log = self._logs.get(source.key)
                if log is None:
                    begun = self._positions.pop(source.key, None)
                    if begun is not None:
                        log = _Log(source, begun, source.restarts, self._first_request(source))
                    else:
                        log = _Log(source, Position())
                    self._logs[source.key] = log
                log.source = source
                log.ended = (log.ended or time.monotonic()) if source.ended or gone else 0.0
                log.gone |= gone and not log.busy
                log.changed.set()
                if log.due and not log.busy:
                    self._begin(log)
                if gone and not log.busy:
                    del self._logs[source.key]

    def _first_request(self, source: Source) -> LogSelection:
        """Return the limits of the first request for a log in which no lines were found before."""
        if self._selection.line_filter(source.pod) is None:
            return self._selection
        return replace(self._selection, lines=None)

    def _trouble(self, fault: TrainerError) -> None:
        """Report a fault at most every 10 seconds, however many threads have it."""
        now = time.monotonic()
        with self._lock:
            if now - self._troubled < 10:
                return
            self._troubled = now
        self._note(f"{fault}; trying again")

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _begin(self, log: _Log) -> None:
        """Start reading a log. The caller has the lock."""
        log.busy = True
        if self._reading < AT_ONCE:
            self._reading += 1
            self._start_thread(lambda: self._attached(log))
            return
        self._turns.put((0.0, log))
        if self._workers < TURNS:
            self._workers += 1
            self._start_thread(self._take_turns)

    def _attached(self, log: _Log) -> None:
        """Read a log as it grows, until its container has ended."""
        pause = AGAIN[0]
        try:
            while not self._stop.is_set():
                newest = log.position.newest
                if not self._once(log, follow=True):
                    return
                pause = AGAIN[0] if log.position.newest > newest else min(pause * 2, AGAIN[1])
                log.changed.wait(pause)
                log.changed.clear()
        finally:
            with self._lock:
                self._reading -= 1

    def _take_turns(self) -> None:
        while not self._stop.is_set():
            try:
                since, log = self._turns.get(timeout=1.0)
            except queue.Empty:
                continue
            self._stop.wait(max(0.0, since + TURN_SECONDS - time.monotonic()))
            if self._once(log, follow=False):
                self._turns.put((time.monotonic(), log))

    def _once(self, log: _Log, *, follow: bool) -> bool:
        """Read the new lines, those of an earlier run first, and return whether more may follow."""
        source = log.source
        if source.restarts > log.at:
            # A request after the restart, but before its watch event, has read the new run already.
            ahead = bool(log.first and source.begun) and log.first >= source.begun * 1e9
            if not self._whole(log, source, log.settled if ahead else log.position, previous=True):
                return True
            log.at = source.restarts
        log.settled, log.first = replace(log.position), 0
        if source.ended:
            whole = self._whole(log, source, log.position)
        else:
            whole = self._read(log, source, log.position, follow=follow)
        with self._lock:
            if whole and source.ended:
                log.read = source.restarts
            if log.due:
                return True
            log.busy = False
            if source.uid not in self._pods:
                self._logs.pop(source.key, None)
            return False

    def _whole(self, log: _Log, source: Source, position: Position, *, previous: bool = False) -> bool:
        """Read a log that does not grow any more, and return whether it was read completely.

        A connection that ends normally may not have delivered everything: the API server does not report that the kubelet broke
        off. So the log is read until nothing new comes and its last line is known.
        """
        log.first, before, tries = 0, -1, 0
        while self._read(log, source, position, previous=previous, complete=before == position.newest):
            if log.gone or self._stop.is_set():
                return True
            if before == position.newest:
                if tries == TRIES or self._ends(source, position, previous=previous):
                    return True
                tries += 1
            before = position.newest
        return False

    def _ends(self, source: Source, position: Position, *, previous: bool) -> bool:
        """Return whether a log ends at the position."""
        try:
            newest = last_time(self._client, self._namespace, source, previous=previous)
        except TrainerError:
            return False
        return newest <= position.newest if newest else not position.newest

    def _read(
        self,
        log: _Log,
        source: Source,
        position: Position,
        *,
        follow: bool = False,
        previous: bool = False,
        complete: bool = False,
    ) -> bool:
        """Read a log with one request, and return whether the connection ended normally."""
        selection = None if position.newest else log.selection
        try:
            lines = read_log(
                self._client, self._namespace, source, position, selection,
                follow=follow, previous=previous, complete=complete,
                opened=lambda shut: setattr(log, "shut", shut),
            )  # fmt: skip
            for line in lines:
                log.first = log.first or line.time
                self._put(line)
                if self._stop.is_set():
                    return True
        except ApiError as error:
            if error.code == 404 or (error.code == 400 and previous):
                log.gone |= error.code == 404
                return True
            if error.code in (401, 403):
                raise
            if error.code != 400:
                self._stop.wait(1.0)
            return False
        except TrainerError as error:  # the watches report why the cluster does not answer
            self._stop.wait(0.3 if isinstance(error, Unreachable) else 1.0)
            return False
        finally:
            log.shut = None
        return True


def _outcome(document: Document) -> Document:
    """Return UID and whether a JobSet or TrainJob has ended."""
    found = derive_phase(document, None) if document.get("kind") == JOBSET.kind else derive_phase(None, document)
    return {"metadata": {"uid": document["metadata"].get("uid")}, "over": found.phase.terminal}
