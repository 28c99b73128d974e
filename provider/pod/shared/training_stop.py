"""Takes note of the SIGTERM that a container gets before its end, for `pulumi_trainer.training`."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """What this process knows of the end of its container."""

    signaled: bool = False
    agreed: bool = False
    calls: int = 0


stop = Stop()


def handle_sigterm() -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    stop.signaled = True


_forking = threading.local()


def _before_fork() -> None:
    """Hold SIGTERM back, which the new process would otherwise lose until it has its own handler."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    """Let a forked process end at SIGTERM, as `Process.terminate()` and the end of a pool of processes expect."""
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
