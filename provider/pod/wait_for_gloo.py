"""Makes the end of a process wait for torch's threads of gloo; it is imported by what a job runs, and needs no other module."""

from __future__ import annotations

import atexit
import glob
import time

THREAD = "pt_gloo_runloop"
"""Name of the threads in which torch's process groups of gloo run collectives (torch 2.6 and later)."""
THREAD_SECONDS = 10
"""Seconds for which the end of the process waits at most for these threads."""


def wait_until_idle() -> None:
    """Wait until the threads of gloo are idle, before Python ends.

    Such a thread frees the tensors of a collective after the collective has returned, and takes the GIL for that. If Python ends
    meanwhile, it ends the thread inside of a destructor (before 3.14): a rank that has done its work dies with SIGABRT and
    "terminate called without an active exception". `destroy_process_group` does not help where an object, such as an FSDP2 model,
    still refers to the group.
    """
    end = time.monotonic() + THREAD_SECONDS
    before: dict[str, list[str]] = {}
    while (now := read_threads()) and time.monotonic() < end:
        # equal numbers of context switches: no thread has run since, although the GIL was free
        if now == before and all(state.startswith("S") for state, *_ in now.values()):
            return
        before = now
        time.sleep(0.01)


def read_threads() -> dict[str, list[str]]:
    """Return the state of each thread of gloo in this process, and its numbers of context switches; nothing without /proc."""
    found = {}
    for path in glob.glob("/proc/self/task/*/status"):
        fields: dict[str, str] = {}
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.rstrip().partition(":\t")
                    fields[name] = value
        except OSError:  # the thread has ended
            continue
        if fields.get("Name") == THREAD:
            names = ("State", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
            found[path] = [fields.get(name, "") for name in names]
    return found


atexit.register(wait_until_idle)
