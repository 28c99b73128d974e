"""Values of YAML scalars without quotes, as Kubernetes' tools read them; PyYAML reads some of them differently.

The API's tools read YAML 1.1 as Go's yaml.v2 does, print it as JSON and read that
(https://github.com/kubernetes-sigs/yaml/tree/v1.6.0): `y`, `on` and `no` are booleans, `0777` and `0o777` are octal, `1e9` and
`2.0` are whole numbers, `1:30` and `2026-01-02` are strings.
"""

from __future__ import annotations

import math
import re
from typing import Any

STR, NULL, BOOL, INT, FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float"))

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMERIC = frozenset("0123456789+-.")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INT = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])_(?=[0-9])")
_BASES = (16, 2, 8, 10)
_LONGEST_INT = 70  # characters: 64 binary digits, and what stands before them
_TAGS: dict[str, tuple[type, ...]] = {NULL: (type(None),), BOOL: (bool,), INT: (int,), FLOAT: (int, float)}


def plain_value(text: str) -> Any:
    """Return the value of a scalar without quotes and tag: None, a bool, an int of 64 bits, a float or a string.

    A whole float that fits into 64 bits becomes an int. Infinite floats and NaN are returned, although JSON does not allow them.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if text[0] == ".":
        digits = _BETWEEN_DIGITS.sub("", text)
    else:
        digits = text.replace("_", "")
    found = None
    if len(digits) <= _LONGEST_INT:
        found = _INT.fullmatch(digits)
    if found:
        sign, *bases = found.groups()
        whole = next(int(digits, base) for digits, base in zip(bases, _BASES, strict=True) if digits)
        if sign == "-":
            whole = -whole
        return _in_64_bits(whole)
    if not _FLOAT.fullmatch(digits):
        return text
    number = float(digits)
    if not math.isfinite(number):
        return text
    if number.is_integer():
        return _in_64_bits(int(number))
    return number


def tagged_value(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag."""
    if tag in (STR, "!"):
        return text
    kind = _TAGS.get(tag)
    if kind is None:
        raise ValueError(f"the tag {shown_tag(tag)} is not plain data")
    value = plain_value(text)
    if not isinstance(value, kind) or (isinstance(value, bool) and tag != BOOL):
        raise ValueError(f"{text!r} is not what its tag {shown_tag(tag)} says")
    return value


def shown_tag(tag: str) -> str:
    """Return a tag as in a YAML text, such as `!!set`."""
    return tag.replace("tag:yaml.org,2002:", "!!")


def _in_64_bits(number: int) -> int | float:
    return number if -(2**63) <= number < 2**63 else float(number)
