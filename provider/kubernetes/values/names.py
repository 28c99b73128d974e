"""Kubernetes' rules for names: each function returns why a name is not valid, in Kubernetes' words; empty for a valid name.

Source: https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from pulumi_trainer.provider.kubernetes.errors import Problem

_LABEL_1123 = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_1123 = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_LABEL_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_LABEL_KEY})?"
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com'"
)
_FOR_SERVERS = re.compile(r" \(e\.g\. .*?, regex used for validation is '.*'\)$")
_PATH = re.compile(r"^\S+ in body (?=should |must )")
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def dns_1035_label(name: str) -> list[str]:
    """Check a name such as that of a Service or a Pod's host name: at most 63 characters, a letter first."""
    why = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
        "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'"
    )
    return _length_and_pattern_faults(name, 63, _LABEL_1035, why)


def dns_1123_subdomain(name: str) -> list[str]:
    """Check a name such as that of most objects: at most 253 characters, labels joined by dots."""
    return _length_and_pattern_faults(name, 253, _SUBDOMAIN_1123, _SUBDOMAIN_WORDS)


def dns_1123_label(name: str) -> list[str]:
    """Check a name such as that of a namespace: at most 63 characters, no dots."""
    if _matches(_SUBDOMAIN_1123, name) and "." in name:
        return [*_too_long(name, 63), "must not contain dots"]
    why = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
        "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc'"
    )
    return _length_and_pattern_faults(name, 63, _LABEL_1123, why)


def qualified_name(name: str) -> list[str]:
    """Check the key of a label: `example.com/MyName`, or without a prefix."""
    why = (
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc'"
    )
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        shape = f"a valid label key {why}, regex used for validation is '{_LABEL_KEY}')"
        return [f"{shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        wrong = _length_and_pattern_faults(prefix, 253, _SUBDOMAIN_1123, _SUBDOMAIN_WORDS, "bytes")
        found += [f"prefix part {each}" for each in wrong]
    if not rest:
        found.append("name part must be non-empty")
    return [*found, *(f"name part {each}" for each in _length_and_pattern_faults(rest, 63, _LABEL_KEY, why, "bytes"))]


def label_value(value: str) -> list[str]:
    """Check the value of a label: at most 63 bytes; it may be empty."""
    why = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'"
    )
    return _length_and_pattern_faults(value, 63, _LABEL_VALUE, why, "bytes")


def domain_prefixed_path(path: str) -> list[str]:
    """Check a path such as `managedBy` or the manager of a patch: `acme.io/foo`."""
    host, _, rest = path.partition("/")
    if not host or not rest:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    found = dns_1123_subdomain(host)
    if not re.fullmatch(_HTTP_PATH, rest):
        found.append(f"Invalid path (regex used for validation is '{_HTTP_PATH}')")
    return found


def in_author_words(why: str) -> str:
    """Return a server's text without the path before it and the regular expression at its end, which repeat the rest."""
    return _FOR_SERVERS.sub("", _PATH.sub("", why))


def name_problems(
    where: str, name: str, rule: Callable[[str], list[str]], what: str = "name", hint: str = ""
) -> list[Problem]:
    """Return why a name that a user gives is not valid, with a similar valid one.

    Args:
        rule: A function of this module that checks names of this kind.
    """
    if not hint:
        similar = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63]
        hint = f"for example {similar or 'my-name'}"
    return [Problem(where, f"{name!r} is not a valid {what}: {in_author_words(why)}", hint) for why in rule(name)]


def quoted(text: str) -> str:
    """Return a name as Go's `%q` writes it into a message: `a"b` and a line feed become `"a\\"b\\n"`.

    https://github.com/golang/go/blob/go1.26.0/src/strconv/quote.go
    """
    return f'"{"".join(map(_escaped, text))}"'


_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", "\\": "\\", '"': '"'}


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return f"\\{_ESCAPES[character]}"
    if character.isprintable():
        return character
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xD800 <= code < 0xE000:  # Go has no such character
        return "\\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _length_and_pattern_faults(name: str, longest: int, pattern: str, why: str, unit: str = "characters") -> list[str]:
    found = _too_long(name, longest, unit)
    if not _matches(pattern, name):
        found.append(f"{why}, regex used for validation is '{pattern}')")
    return found


def _too_long(name: str, longest: int, unit: str = "characters") -> list[str]:
    over = len(name) > longest or len(name.encode(errors="replace")) > longest
    if not over:
        return []
    return [f"must be no more than {longest} {unit}"]


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern, rewritten so that matching takes linear time."""
    return re.compile(pattern.replace("([-a-z0-9]*[a-z0-9])?", "(?:-*[a-z0-9])*"))


def _matches(pattern: str, name: str) -> bool:
    return _compiled(pattern).fullmatch(name) is not None
