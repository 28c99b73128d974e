"""Quantities: values and texts as Kubernetes' own parser gives them (recorded from apimachinery v0.36.3)."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity, canonical

TEXTS = {
    "0": "0",
    "0.0": "0",
    "3": "3",
    "+5": "+5",
    "0.5": "500m",
    ".5": "500m",
    "1.": "1.",
    "1.5": "1500m",
    "1.500": "1.500",
    "2.125": "2.125",
    "1000": "1k",
    "1000m": "1",
    "3500m": "3500m",
    "1e9": "1e9",
    "1000e3": "1e6",
    "1.5e3": "1500",
    "1e1": "10",
    "1024Mi": "1Gi",
    "1Gi": "1Gi",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "1000Ki": "1000Ki",
    "1073741824": "1073741824",
    "0.1n": "1n",
    "-0.5": "-500m",
    "-2Gi": "-2Gi",
    "16Ei": "9223372036854775807",
    "1000E": "1",
}
VALUES = {"3500m": 4, "1": 1, "0": 0, "1m": 1, "1Ki": 1024, "2.5Gi": 2684354560, "1e3": 1000, "-1.5": -2}


@pytest.mark.parametrize(("given", "wanted"), TEXTS.items())
def test_text(given: str, wanted: str) -> None:
    assert str(Quantity.parse(given)) == wanted
    assert canonical(given) == wanted
    assert Quantity.parse(wanted).amount == Quantity.parse(given).amount or given == "1000E"


@pytest.mark.parametrize("space", [" ", "\xa0", "\u3000"])
def test_white_space_that_json_writes_as_it_is_is_trimmed(space: str) -> None:
    assert canonical(f"{space}1{space}") == "1"


@pytest.mark.parametrize("space", ["\n", "\t", "\r", "\v", "\x1c", "\u2028"])
def test_white_space_that_json_escapes_is_refused(space: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity"):
        canonical(f"1{space}")


def test_number() -> None:
    assert canonical(8) == "8"
    assert canonical(1000) == "1k"


@pytest.mark.parametrize(("given", "wanted"), VALUES.items())
def test_value(given: str, wanted: int) -> None:
    assert Quantity.parse(given).value == wanted


@pytest.mark.parametrize(
    ("first", "times", "second", "wanted"),
    [
        ("1Gi", 2, "1G", "3147483648"),
        ("500m", 3, "1Ki", "1025500m"),
        ("1e3", 1, "1k", "2e3"),
        ("0", 5, "1Ki", "1Ki"),
        ("1Ki", 0, "1024", "1024"),
        ("-1", 3, "1", "-2"),
        ("9E", 3, "0", "27E"),
        ("512", 1, "512Mi", "536871424"),
        ("1Mi", -1, "0", "-1Mi"),
    ],
)
def test_sums(first: str, times: int, second: str, wanted: str) -> None:
    """In the format of the first that is not zero."""
    assert str(Quantity.parse(first) * times + Quantity.parse(second)) == wanted


@pytest.mark.parametrize(
    "given",
    ["", " ", "-", "m", "1 Gi", "1gi", "4GB", "1.1i", "1e", "1e2.5", "one", "1e999999999", "9" * 5000, "1_0", "١"],
)
def test_no_quantity(given: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity such as 3, 500m or 4Gi"):
        Quantity.parse(given)


@pytest.mark.parametrize("value", [None, [], {}, 3])
def test_what_is_no_text_is_no_quantity(value: Any) -> None:
    with pytest.raises(ValueError, match="must be a quantity"):
        Quantity.parse(value)
