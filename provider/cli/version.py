"""`version`: prints the version of this package and the versions of the products that it follows."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.kubernetes.terminal import print_lines
from pulumi_trainer.provider.kubernetes.values.wording import aligned
from pulumi_trainer.provider.trainer.upstream import UPSTREAM

_HEAD = ("PRODUCT", "FOLLOWED", "RUN AGAINST", "LEAST")


def show(output: str) -> None:
    """Print all versions. output: table, json or yaml."""
    found = read_versions()
    if output != "table":
        print_data(found, output)
        return
    rows = [(p["name"], p["followed"], p["tested"], p["least"] or "-") for p in found["products"]]
    table = aligned([_HEAD, *rows])
    print_lines([f"pulumi-trainer {found['version']}", "", *table, "", "Known to differ:"])
    for product in found["products"]:
        print_lines(f"  {product['name']} {difference}" for difference in product["differences"])


def read_versions() -> dict[str, Any]:
    """Return a `VersionResult`."""
    products = [*map(asdict, UPSTREAM.values())]
    for product in products:
        product["needed"] = product["needed"].replace("`", "")
        product["differences"] = list(product["differences"])
    return {"version": version("pulumi-trainer"), "products": products}
