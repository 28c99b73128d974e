"""Hosts Pulumi's dynamic providers, but loads only the provider classes of pulumi_trainer, whatever a stack's state contains.

Pulumi's own host unpickles the property `__provider` of a resource, and a pickle may run any program. The engine starts this host
if Pulumi.yaml names this folder (docs/security.md).
"""

from __future__ import annotations

import io
import pickle
import pickletools
import runpy
import sys
from importlib import import_module
from typing import Any

from pulumi_trainer.provider.engine.pulumi_compat import answer_imports_with, answer_with

_MODULE = "pulumi_trainer.provider.engine.dynamic"
_PROVIDERS = (
    "JobSetProvider", "VolumeProvider", "RuntimeProvider", "ChannelProvider", "QueueGuardProvider", "TargetProvider",
    "StackMarkProvider", "ObjectGuardProvider", "ModelVersionProvider",
)  # fmt: skip
_LONGEST = 4096
"""Limit on the bytes of a pickle, which only refers to a class."""
_NO_IMPORT = (
    "`pulumi import` takes no resources of pulumi_trainer: their inputs are the arguments of a component. Write it with"
    " `pulumi-trainer import KIND/NAME -n NAMESPACE -o -`"
)


class Refused(pickle.UnpicklingError):
    """The state names something other than a provider of pulumi_trainer."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the stack's state names {what} as the provider of a resource, but this host only runs providers of"
            " pulumi_trainer. If the program has its own dynamic providers, remove pulumi-python from `plugins` in"
            " Pulumi.yaml; if not,"
            " somebody has changed the state: compare it with `pulumi stack export --version N`"
        )


class _Reader(pickle.Unpickler):
    """Reads which class a pickle refers to; what the pickle does to that class happens to an empty one of the same name."""

    def find_class(self, module: str, name: str) -> Any:
        if module != _MODULE or name not in _PROVIDERS:
            raise Refused(f"{module}.{name}"[:200])
        return type(name, (), {"__module__": __name__})


def load_provider(data: bytes, *_: Any, **__: Any) -> Any:
    """Return the provider that a pickle refers to.

    Raises:
        Refused: The pickle is not a reference to a provider of pulumi_trainer.
    """
    try:
        name = _provider_name(data)
    except Refused as error:
        answer_with(str(error))
        raise
    return getattr(import_module(_MODULE), name)()


def _provider_name(data: bytes) -> str:
    """Return the name of the class that a pickle refers to. Raises Refused."""
    if len(data) > _LONGEST:
        raise Refused(f"a pickle of {len(data)} bytes")
    try:
        for opcode, argument, _at in pickletools.genops(data):
            if opcode.name.endswith("PUT") and (argument or 0) > len(data):  # the memo would allocate as many entries
                raise Refused(f"a pickle with more than {argument} values")
        found = type(_Reader(io.BytesIO(data)).load())
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"a pickle that cannot be read ({type(error).__name__})") from None
    if found.__module__ != __name__ or found.__name__ not in _PROVIDERS:
        raise Refused(f"a value of type {found.__name__}")
    return found.__name__


def _refuse_others(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse all other pickles of this process, in case a later release of Pulumi reads them without `dill.loads`."""
    if event == "pickle.find_class":
        raise Refused(".".join(map(str, arguments))[:200])


def main() -> None:
    """Run Pulumi's host with `load_provider` as its unpickler."""
    import dill  # type: ignore[import-untyped]

    dill.loads = load_provider
    answer_imports_with(_NO_IMPORT)
    sys.addaudithook(_refuse_others)
    runpy.run_module("pulumi.dynamic", run_name="__main__", alter_sys=True)
