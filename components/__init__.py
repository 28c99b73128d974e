"""Distributed training as infrastructure code: Kubeflow Trainer's runtimes and TrainJobs as Pulumi resources.

The names of `exports` are imported when one is used: importing anything below `pulumi_trainer.provider` runs this file, and must
load neither Pulumi nor a client of a cluster.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exports import *  # noqa: F403
else:  # it would make any name right for type checkers

    def __getattr__(name: str) -> Any:
        is_private = name.startswith("_") and name != "__all__"
        # Python asks for the name of a module before it imports the module.
        if is_private or find_spec(f"{__name__}.{name}"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        exports = vars(import_module(".exports", __name__))
        names = sorted(each for each in exports if not each.startswith("_"))
        if name == "__all__":
            return names
        if name in names:
            globals()[name] = exports[name]  # it is asked for once
            return exports[name]
        from difflib import get_close_matches  # not with each import of the provider

        near = get_close_matches(name, names, n=1)
        hint = f". Hint: did you mean {near[0]}?" if near else ""
        why = f"module {__name__!r} has no attribute {name!r}{hint}"
        if "pulumi" in sys.modules:  # a program, which ends without a traceback
            from .program.session import unknown_name

            raise unknown_name(why, sys._getframe(1))
        raise AttributeError(why)

    def __dir__() -> list[str]:
        return __getattr__("__all__")
