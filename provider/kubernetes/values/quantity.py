"""Kubernetes quantities ("500m", "4Gi", "1e3"): parsing, arithmetic, and the canonical text that Kubernetes stores.

As resource.Quantity: https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/api/resource/quantity.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.wording import short_repr

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))(?P<suffix>.*)", re.S
)
_EXPONENT = re.compile(r"[eE](?P<exponent>[+-]?[0-9]+)")

_SPACES = "\x20\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""What Go trims of the text in a document: white space that JSON does not have to escape. `"1\\n"` is not trimmed."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}

_MAX_INT64 = 2**63 - 1
_NANO = Fraction(1, 10**9)
_MAX_TEXT = 64
_MAX_EXPONENT = 64


class Format(str, Enum):
    """The family of suffixes in which a quantity is written and printed."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True)
class Quantity:
    """An exact amount.

    Args:
        format: The family of suffixes it was written with.
        digits: Number of digits it was written with; Go keeps up to 18 in an int64.
    """

    amount: Fraction
    format: Format
    text: str
    digits: int = 19

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse "3", "500m", "1.5Gi" or "1e3"; digits below a nano are rounded up."""
        if not isinstance(text, str):
            raise ValueError(_not_a_quantity(str(text)))
        return _parse(text)

    @property
    def value(self) -> int:
        """The amount as a whole number, rounded away from zero: "3500m" is 4 (Go: `Value()`).

        An amount beyond int64 overflows as in Go: 0 if it was written with few digits ("10E"), else its lowest 64 bits.
        """
        number = _away_from_zero(self.amount)
        if -_MAX_INT64 - 1 <= number <= _MAX_INT64:
            return number
        if self.digits <= 18:
            return 0
        return (number + 2**63) % 2**64 - 2**63

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum, in the format of the first operand that is not zero."""
        return self._with(self.amount + other.amount, self.format if self.amount else other.format)

    def __mul__(self, times: int) -> Quantity:
        return self._with(self.amount * times, self.format)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def _with(cls, amount: Fraction, format_: Format) -> Quantity:
        return cls(amount, format_, _printed(amount, format_))


def canonical(value: str | int) -> str:
    """Return the text that Kubernetes stores: "500m" for "0.5", "1Gi" for "1024Mi"."""
    return _parse(str(value)).text


@lru_cache(maxsize=1024)
def _parse(text: str) -> Quantity:
    trimmed = text.strip(_SPACES)
    match = _TEXT.fullmatch(trimmed) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise ValueError(_not_a_quantity(text))
    whole = (match["whole"] or "").lstrip("0") or "0"
    part = match["part"] or match["only"] or ""
    format_, power = _suffix(text, match["suffix"])
    base = Fraction(2) if format_ is Format.BINARY else Fraction(10)
    size = Fraction(int(whole + part), 10 ** len(part)) * base**power
    if size % _NANO:
        size = _away_from_zero(size / _NANO) * _NANO
    written = _kept_as_written(whole, part, format_, power)
    if format_ is Format.BINARY and not written:
        size = min(size, Fraction(_MAX_INT64))
        if 0 < size < 1:
            format_ = Format.DECIMAL
    amount = -size if match["sign"] == "-" else size
    printed = trimmed
    if not written:
        printed = _printed(amount, format_)
    return Quantity(amount, format_, printed, len(whole + part))


def _suffix(text: str, suffix: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return Format.DECIMAL, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None or abs(int(match["exponent"])) > _MAX_EXPONENT:
        raise ValueError(_not_a_quantity(text))
    return Format.EXPONENT, int(match["exponent"])


def _kept_as_written(whole: str, part: str, format_: Format, power: int) -> bool:
    """Return whether Go keeps the text as written: its fast path treats some texts as canonical, such as "1.500"."""
    digits = whole + part
    if format_ is Format.BINARY:
        room = 15 - len(whole) - int(power * 3 / 10) - 1
        return not part and room >= 0 and int(whole) % 8 != 0
    scale = power - len(part)
    room = 18 - len(digits)
    return room >= 0 and scale >= -9 and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _printed(amount: Fraction, format_: Format) -> str:
    if not amount:
        return "0"
    if format_ is Format.BINARY and (abs(amount) < 1024 or amount.denominator != 1):
        format_ = Format.DECIMAL
    if format_ is Format.BINARY:
        number, power = _without_factors(amount.numerator, 1024)
        return f"{number}{_BINARY_SUFFIX.get(power * 10, '')}"
    number, power = _without_factors(int(amount / _NANO), 10)
    power -= 9
    number *= 10 ** (power % 3)
    power -= power % 3
    if format_ is Format.EXPONENT:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX.get(power, '')}"


def _without_factors(number: int, base: int) -> tuple[int, int]:
    power = 0
    while number % base == 0:
        number //= base
        power += 1
    return number, power


def _away_from_zero(number: Fraction) -> int:
    if number > 0:
        return -(-number.numerator // number.denominator)
    return number.numerator // number.denominator


def _not_a_quantity(text: str) -> str:
    shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    return f"must be a quantity such as 3, 500m or 4Gi, not {shown!r}"


def format_bytes(size: float) -> str:
    """Return a size as text: 1234567 becomes "1.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def quantity_problems(value: Any) -> list[Problem]:
    """Return why a quantity is not valid; empty for a valid or unknown one, and for the output of a Pulumi resource."""
    if not isinstance(value, (str, int, float)):
        return []
    if isinstance(value, (bool, float)):
        return [Problem("", f"must be {EXAMPLES}, not {short_repr(value)}")]
    try:
        Quantity.parse(str(value))
    except ValueError as error:
        return [Problem("", str(error))]
    return []


EXAMPLES = 'a quantity such as 3, "500m" or "4Gi"'
