"""Entry point of the command `pulumi-trainer`.

`commands.parsers` parses the commands that have to answer at once (`validate`, `render`, `runtimes`, ...), `commands.app` the
others. Neither loads Pulumi or a client of a cluster.
"""

from __future__ import annotations

import os
import sys

from pulumi_trainer.provider.api.extras import EXTRAS, not_installed
from pulumi_trainer.provider.commands import parsers
from pulumi_trainer.provider.kube.errors import TrainerError
from pulumi_trainer.provider.kube.terminal import print_line


def main() -> None:
    """Run a command. Errors for users are one line on stderr, with exit code 1."""
    try:
        if sys.argv[1:] and sys.argv[1] in parsers.COMMANDS:
            code = parsers.run(sys.argv[1], sys.argv[2:])
            sys.stdout.flush()
            sys.exit(code)
        from pulumi_trainer.provider.commands.app import app

        app()
    except TrainerError as error:
        print_line(f"error: {error}", error=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        print_line(f"error: {not_installed(module, 'this command')}", error=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        sys.exit(0)
    except OSError as error:
        print_line(f"error: cannot write: {error.strerror or error}", error=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


if __name__ == "__main__":
    main()
