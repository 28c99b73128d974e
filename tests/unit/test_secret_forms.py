"""Secrets are hidden however a program writes them, and in the rest of an output that begins within one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.client.masking import MASK, mask, secret_forms

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "a mapping": lambda t: str({"key": t}),
    "KeyError of a mapping": lambda t: str(KeyError(str({"key": t}))),
    "ascii": ascii,
    "bytes": lambda t: str(t.encode()),
    "JSON": json.dumps,
    "JSON in JSON": lambda t: json.dumps({"text": json.dumps([t])}),
    "JSON with any letter": lambda t: json.dumps(t, ensure_ascii=False),
    "URL": lambda t: quote(t) + quote(t, safe="") + quote_plus(t),
    "shell": shlex.quote,
}


@pytest.mark.parametrize("write", SPELLINGS.values(), ids=SPELLINGS)
@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40).filter(lambda t: t not in MASK))
def test_no_spelling_is_left(write: Callable[[str], str], secret: str) -> None:
    text = f"it is {write(secret)}, twice {write('x' + secret)}"
    shown = mask(text, secret_forms([secret]))
    assert MASK in shown
    assert not any(form in shown.replace(MASK, "\0\n\0") for form in secret_forms([secret]))


PEM = (
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwgg7sAgEAAoIBAQC7VJTUt9Us8cKj\nab==\n-----END KEY-----\n"
)


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        repr(PEM),
        PEM.replace("\n", " "),
        PEM.replace("\n", ""),
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\r\n"),
        "".join(f"[rank0]: {line}\n" for line in PEM.splitlines()),
        str(PEM.splitlines()),
    ],
)
def test_each_line_of_a_secret(text: str) -> None:
    shown = mask(text, secret_forms([PEM]))
    assert "MIIE" not in shown and "cKj" not in shown and "KEY" not in shown


def test_secrets_within_and_beside_each_other() -> None:
    forms = secret_forms(["abcdef", "defghi", "cd", "secret"])
    assert mask("1 abcdefghi 2 abcdef 3 abcdefabcdef secret", forms) == f"1 {MASK} 2 {MASK} 3 {MASK}{MASK} {MASK}"
    assert mask("nothing", secret_forms(())) == mask("nothing", (), cut=True) == "nothing"


@settings(max_examples=50)
@given(st.text("ab", min_size=4, max_size=12), st.integers(1, 11), st.text("c\n", min_size=12, max_size=30))
def test_the_end_of_a_longer_text(secret: str, lost: int, rest: str) -> None:
    """Where the text was cut within a secret, nothing of that one is left."""
    shown = mask(secret[lost:] + rest, secret_forms([secret]), cut=True)
    assert shown.startswith(MASK) and set(shown.removeprefix(MASK)) <= set(rest)
    assert rest.endswith(shown.removeprefix(MASK))
