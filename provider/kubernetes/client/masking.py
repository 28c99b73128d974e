"""Hides secrets in texts, in each form in which they may be written, and checks where they may be sent."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from urllib.parse import quote, quote_plus, urlsplit

MASK = "[secret]"
SHORTEST = 4
"""Characters of a secret that is hidden in messages: a shorter one would occur everywhere."""
SHORTEST_LINE = 8
"""Characters of a line of a secret that is hidden by itself."""


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return secrets as they may be written: whole, on one line, and each of their lines; as they are, as parts of a URL, and as
    Python, JSON and a shell quote them, up to twice. The longest comes first."""
    forms: set[str] = set()
    for part in set(chain.from_iterable(map(_parts, secrets))):
        quoted = {part, *_quoted(part)}
        forms |= {*quoted, *chain.from_iterable(map(_quoted, quoted)), *_in_urls(part)}
    return tuple(sorted(forms - {""}, key=len, reverse=True))


def forms_of_values(values: Iterable[str]) -> tuple[str, ...]:
    """Return the forms of values of Secrets; of values that are JSON, of each text in them, as any of these may be secret."""
    texts: set[str] = set()
    for value in values:
        texts |= {value, *_texts_in(value)}
    return secret_forms(text for text in texts if len(text) >= SHORTEST)


def _texts_in(secret: str) -> list[str]:
    """Return every text in a JSON object or list, except keys."""
    try:
        pending = [json.loads(secret)] if secret.lstrip()[:1] in ("{", "[") else []
    except (ValueError, RecursionError):
        return []
    found = []
    while pending:
        match pending.pop():
            case dict(inside):
                pending += inside.values()
            case list(inside):
                pending += inside
            case str(text):
                found.append(text)
    return found


def _parts(secret: str) -> set[str]:
    lines = secret.splitlines()
    if len(lines) < 2 and secret.strip() == secret:
        return {secret}
    words = secret.split()
    alone = {line.strip() for line in lines}
    return {secret, secret.strip(), " ".join(words), "".join(words), *(a for a in alone if len(a) >= SHORTEST_LINE)}


def _quoted(text: str) -> Iterator[str]:
    for write in (repr, ascii, lambda t: repr(t.encode(errors="surrogatepass"))[1:]):
        literal = write('"' + text)  # with a quotation mark in it, Python escapes each apostrophe
        escaped = literal[2:-1]
        yield escaped
        yield escaped.replace("\\'", "'")
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    for apostrophe in ("'\\''", "'\"'\"'"):
        yield text.replace("'", apostrophe)


def _in_urls(text: str) -> Iterator[str]:
    for write in (quote, quote_plus):
        for safe in ("", "/"):
            yield write(text, safe=safe, errors="surrogatepass")


def mask(text: str, forms: Collection[str], *, cut: bool = False) -> str:
    """Return a text without secrets.

    Args:
        forms: Each secret in each spelling, of `secret_forms`.
        cut: Whether the text is the end of a longer one: what may be the end of a secret is left out.
    """
    found = [(0, max(map(len, forms), default=0) - 1)] if cut else []
    for form in forms:
        start = text.find(form)
        while start >= 0:
            found.append((start, start + len(form)))
            start = text.find(form, start + 1)
    shown, position = [], 0
    for start, end in sorted(found):
        if start >= position and end > start:
            shown += [text[position:start], MASK]
        position = max(position, end)
    return "".join([*shown, text[position:]])


def hide_credentials(url: str) -> str:
    """Return a URL without its query and without what stands before its last @, if that may be a user or a password."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    before, at, after = rest.rpartition("@")
    if at and (":" in before or "/" not in before):
        rest = after
    return scheme + separator + rest.partition("?")[0]


def is_loopback(url: str) -> bool:
    """Return whether an address leads only to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
