"""Our host of dynamic providers: what a state may ask for."""

from __future__ import annotations

import base64
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import dill  # type: ignore[import-untyped]
import pytest
from pulumi.dynamic import ResourceProvider
from pulumi.dynamic.dynamic import serialize_provider
from pulumi_trainer.provider.engine import dynamic, host


def ours() -> list[type[ResourceProvider]]:
    return [v for v in vars(dynamic).values() if isinstance(v, type) and issubclass(v, dynamic._Provider)]


def test_all_our_providers() -> None:
    classes = [c for c in ours() if not c.__name__.startswith("_")]
    assert sorted(c.__name__ for c in classes) == sorted(host._PROVIDERS)
    for each in classes:
        assert type(host.load_provider(base64.b64decode(serialize_provider(each())))) is each
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert type(host.load_provider(dill.dumps(each(), protocol=protocol))) is each


class Evil:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {PLACE}",)


PLACE = "owned"


def _changed(state: Any) -> bytes:
    """One of our classes whose attributes the pickle sets."""
    provider = dynamic.JobSetProvider()
    provider.__dict__.update(state)
    return pickle.dumps(provider)


OURS = pickle.dumps(dynamic.JobSetProvider(), protocol=2)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()), dill.dumps(lambda: 1, recurse=True), pickle.dumps({}), b"", b"\x80\x04.", b"cos\nsystem\n.",
        b"\x80\x04\x8c\x26pulumi_trainer.provider.engine.dynamic\x8c\x12sys.modules.system\x93.",
        b"cpulumi_trainer.provider.engine.dynamic\nJobSetProvider.check.__globals__\n.", b"c__builtin__\n__main__\n.",
        b"cpulumi_trainer.provider.engine.dynamic\nsys\n.", pickle.dumps("x" * 5000),
        b"cpulumi_trainer.provider.engine.dynamic\nconnect\n.",
        b"cpulumi_trainer.provider.engine.dynamic\nJobSetProvider\n.", b"\x82\x01.", b"Pid\n.",
        *(b"\x80\x04N" + put + b"0" + OURS[2:] for put in (b"r\xff\xff\xff\x07", b"p134217727\n")),
    ],
    ids=range(17),
)  # fmt: skip
def test_nothing_else(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(host.Refused, match="this host only runs providers of pulumi_trainer"):
        host.load_provider(data)
    assert list(tmp_path.iterdir()) == []


def test_what_a_pickle_does_to_our_class_is_lost() -> None:
    data = _changed({"create": "x", "serialize_as_secret_always": True})
    assert any(op.name == "BUILD" for op, *_ in pickletools.genops(data))
    found = host.load_provider(data)
    assert vars(found) == {} and callable(found.create)
