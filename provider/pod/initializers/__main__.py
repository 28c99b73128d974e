"""Fetch a dataset or a model: `python -m pulumi_trainer.provider.pod.initializers dataset|model`.

Prints the `trainerStatus` lines that targets show on stdout, and messages for people on stderr. Exit code: 0 complete; 1 not
fetched, with the reason in one paragraph; 2 an invalid argument or variable.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pulumi_trainer.provider.jobs.observed_inputs import TERMINATION_LOG, Revision, fetch_message
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.initializers import contract, fetch
from pulumi_trainer.provider.pod.initializers.manifest import Manifest
from pulumi_trainer.provider.pod.initializers.progress import Progress

HUMAN_INTERVAL = 10.0


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Fetch the dataset or model that the variables name."""
    parser = argparse.ArgumentParser(prog="python -m pulumi_trainer.provider.pod.initializers", description=__doc__)
    parser.add_argument("kind", choices=("dataset", "model"))
    kind: contract.Kind = parser.parse_args(argv).kind
    logging.basicConfig(handlers=[logging.NullHandler()])  # messages of other libraries may contain secrets
    ours = logging.getLogger(__package__)
    ours.addHandler(logging.StreamHandler(sys.stderr))
    ours.setLevel(logging.INFO)
    uri = env.get(contract.STORAGE_URI, "")
    output = Path(env.get(contract.OUTPUT_DIR) or contract.DEFAULT_OUTPUT[kind])
    try:
        if not output.is_absolute():
            raise Invalid(Problem(contract.OUTPUT_DIR, f"{str(output)!r} is relative", "give an absolute path"))
        fetched = fetch(kind, uri, output, env=env, report=_ProgressPrinter())
    except TrainerError as error:
        _print_line(f"{kind} initializer: {error}")
        return 2 if isinstance(error, Invalid) else 1
    except Exception as error:
        _print_line(contract.secret_mask(env)(f"{kind} initializer: {uri}: unexpected {type(error).__name__}: {error}"))
        return 1
    if code.LAYER_ENV not in env:  # the machine's own file is not that of a container
        _report(kind, fetched)
    _print_line(f"{fetched.uri} at {fetched.revision} is complete in {output}: {len(fetched.files)} files")
    return 0


def _report(kind: contract.Kind, fetched: Manifest) -> None:
    """Write what was fetched into the termination message of the container, from which the record of the run has it."""
    with suppress(OSError), open(TERMINATION_LOG, "r+", encoding="utf-8") as file:  # noqa: PTH123 - no new file
        file.write(fetch_message(kind, Revision(fetched.revision, fetched.uri)))


def _print_line(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr, flush=True)


class _ProgressPrinter:
    """Prints progress as JSON, and every `HUMAN_INTERVAL` seconds for people."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        with suppress(OSError):  # a closed stdout does not end the fetch
            print(json.dumps(progress.trainer_status()), flush=True)
            if progress.finished or time.monotonic() - self._last >= HUMAN_INTERVAL:
                self._last = time.monotonic()
                _print_line(str(progress))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback, and no wait for the threads
    sys.exit(main(sys.argv[1:], os.environ))
