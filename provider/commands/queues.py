"""`queues`: who holds, borrows and waits in Kueue's queues of a cluster, and why; as bars, or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction

from pulumi_trainer.provider.commands.jobs import of_stack, opened
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.terminal import plain
from pulumi_trainer.provider.kube.values.wording import duration
from pulumi_trainer.provider.kueue.objects import BOUNDLESS
from pulumi_trainer.provider.kueue.occupancy import (
    Occupancy,
    Queue,
    Share,
    Work,
    occupancy,
)
from pulumi_trainer.provider.kueue.quota import ZERO
from pulumi_trainer.provider.kueue.quota import amount as quantity
from pulumi_trainer.provider.kueue.quota import text as amount
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Cell = Text | ProgressBar | str
_MISSED = {
    "workloads": "which jobs hold and wait",
    "localqueues": "LocalQueues that no job waits in",
    "clusterqueues": "quotas, and what others hold",
    "cohorts": "what cohorts add to quotas",
}
"""Plural of a kind -> what is not told without it."""


def queues(where: Where, *, as_json: bool) -> None:
    """Prints the queues of a namespace, or of the cluster; in a project, of the stack's."""
    from pulumi_trainer.provider.targets.kubernetes.queues.queues import overview

    if of_stack(None, where):
        from pulumi_trainer.provider.commands.stack import cluster_of

        where = cluster_of(where.stack or None)
    client, namespace = opened(where)
    documents, unseen = overview(client, "" if where.everywhere else namespace)
    found = occupancy(documents, unseen)
    found = found if where.everywhere else _of_namespace(found)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    out = Console(width=None if sys.stdout.isatty() else 2**10, markup=False, emoji=False)  # names are no markup
    jobs = _work_table(found.work, namespaces=where.everywhere)
    parts = [_cluster_table(found.cluster_queues), _local_table(found.local_queues), jobs]
    shown = [_printed(out, part) for part in parts if part.row_count]
    place = "the cluster has" if where.everywhere else f"namespace {namespace} has"
    print("\n\n".join(shown) if shown else f"{place} no queues of Kueue, and no jobs in any")
    for line in _cut(found.unseen):
        print(line, file=sys.stderr)


def _of_namespace(found: Occupancy) -> Occupancy:
    """With the ClusterQueues that its jobs go through, and no others."""
    used = {q.behind for q in found.local_queues} | {w.cluster_queue for w in found.work}
    return Occupancy([q for q in found.cluster_queues if q.name in used], found.local_queues, found.work, found.unseen)


def _printed(out: Console, table: Table) -> str:
    with out.capture() as text:
        out.print(table)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _cluster_table(found: Iterable[Queue]) -> Table:
    table = _table("cluster queue", "cohort", "flavor", "resource", "", "used", "borrowed", "at most", "holds", "waits")
    for queue in sorted(found, key=lambda q: (q.behind, q.name)):
        head: list[Cell] = [_name(queue), plain(queue.behind)]
        tail = [str(queue.admitted or ""), str(queue.pending or "")]
        for share in [share for share in queue.shares if not _idle(share)] or (None,):
            table.add_row(*head, *(_share(share) if share else [""] * 6), *tail)
            head = ["", ""]
            tail = ["", ""]
        if queue.inactive:
            table.add_row(Text(f"  takes no jobs: {plain(queue.inactive)}", style="red"))
    return table


def _idle(share: Share) -> bool:
    """Whether it only says that nobody uses what has no limit."""
    most = quantity(BOUNDLESS.get(share.resource))
    return not share.used and most is not None and (share.nominal or ZERO) >= most


def _share(share: Share) -> list[Cell]:
    nominal, borrowed = share.nominal or ZERO, share.borrowed or ZERO
    style = "yellow" if borrowed else "green"
    scale, used = float(max(nominal, share.used, Fraction(1))), float(share.used)
    bar = ProgressBar(total=scale, completed=used, width=20, complete_style=style, finished_style=style)
    told = f"{amount(share.resource, share.used)} of {amount(share.resource, nominal)}"
    lent = Text(amount(share.resource, borrowed) if borrowed else "", style="yellow")
    most = amount(share.resource, share.most) if share.most is not None else ""
    return [plain(share.flavor), plain(share.resource), bar, told, lent, most]


def _local_table(found: Iterable[Queue]) -> Table:
    table = _table("queue", "namespace", "cluster queue", "used", "holds", "waits")
    for queue in found:
        used = ", ".join(f"{amount(s.resource, s.used)} {plain(s.resource)}" for s in queue.shares if s.used)
        table.add_row(
            _name(queue),
            plain(queue.namespace),
            plain(queue.behind),
            used,
            str(queue.admitted or ""),
            str(queue.pending or ""),
        )
        if queue.inactive:
            table.add_row(Text(f"  takes no jobs: {plain(queue.inactive)}", style="red"))
    return table


def _name(queue: Queue) -> Text:
    return Text(plain(queue.name), style="red" if queue.inactive else "")


def _work_table(found: Iterable[Work], *, namespaces: bool) -> Table:
    head = ("namespace", "job") if namespaces else ("job",)
    table = _table(*head, "queue", "state", "asks for", "priority", "for", "why")
    for work in found:
        asked = ", ".join(f"{n} {plain(resource)}" for resource, n in work.asks.items())
        rank = " ".join(filter(None, (plain(work.priority_class), str(work.priority or ""))))
        state = Text("holds", style="green") if work.holds else Text("waits", style="yellow")
        since = duration(max(0.0, time.time() - work.since)) if work.since else ""
        place = [plain(work.namespace)] if namespaces else []
        table.add_row(*place, plain(work.name), plain(work.queue), state, asked, rank, since, plain(work.why))
    return table


def _cut(unseen: Iterable[str]) -> Iterator[str]:
    """What is not told, and what would help."""
    missed = [f"{plural} ({_MISSED[plural]})" for plural in unseen if plural in _MISSED]
    if missed:
        why = "no permission to list them, or no such kind; `pulumi-trainer rbac --quotas` prints what is needed"
        yield f"\nnot seen: {', '.join(missed)}: {why}"
