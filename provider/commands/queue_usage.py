"""`queues`: shows which jobs use or wait for the quota of Kueue's queues, as bars or as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from pulumi_trainer.provider.commands.formats import add_row, print_data
from pulumi_trainer.provider.commands.jobs import of_stack, open_cluster
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kube.values.wording import did_you_mean, duration, plural
from pulumi_trainer.provider.kueue.objects import BOUNDLESS
from pulumi_trainer.provider.kueue.occupancy import Cohort, Occupancy, Queue, Share, Work, occupancy
from pulumi_trainer.provider.kueue.quota import ZERO
from pulumi_trainer.provider.kueue.quota import amount as quantity
from pulumi_trainer.provider.kueue.quota import format_amount as amount
from rich.console import Console
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Cell = Text | ProgressBar | Padding | str
_MISSED = {
    "workloads": "which jobs run and wait",
    "localqueues": "LocalQueues without waiting jobs",
    "clusterqueues": "quotas, and what other jobs use",
    "cohorts": "what cohorts add to quotas",
}
"""Plural of a kind -> what is missing without it."""


@dataclass(frozen=True)
class Shown:
    """Which queues are printed.

    Args:
        queue: Name of a LocalQueue, such as that of a team, or of a ClusterQueue; empty for all.
        cohort: Name of a cohort, whose queues are shown with those of the cohorts below it; empty for all.
        idle: Whether to print queues that no job uses or waits in, too.
    """

    queue: str = ""
    cohort: str = ""
    idle: bool = False

    def of(self, found: Occupancy) -> Occupancy:
        """Return the queues that match, with the jobs in them."""
        if not self.queue and not self.cohort:
            return found
        named = {q.behind for q in found.local_queues if q.name == self.queue} | {self.queue}
        cluster = [q for q in found.cluster_queues if not self.queue or q.name in named]
        if self.cohort:
            cluster = [q for q in cluster if self.cohort in found.cohorts_above(q)]
        names = {q.name for q in cluster} | (named if not self.cohort else set())
        local = [q for q in found.local_queues if q.behind in names and self.queue in ("", q.name, q.behind)]
        work = [w for w in found.work if w.cluster_queue in names and self.queue in ("", w.queue, w.cluster_queue)]
        return _with_cluster_queues(replace(found, local_queues=local, work=work), cluster)


def _with_cluster_queues(found: Occupancy, kept: Sequence[Queue]) -> Occupancy:
    """Return the occupancy with some of its ClusterQueues and the cohorts above these."""
    above = set(chain.from_iterable(map(found.cohorts_above, kept)))
    return replace(found, cluster_queues=kept, cohorts=[cohort for cohort in found.cohorts if cohort.name in above])


def _busy(found: Occupancy) -> Occupancy:
    """Return the queues that jobs use or wait in, or that take no jobs."""
    local = [q for q in found.local_queues if not _is_idle(q)]
    cluster = [q for q in found.cluster_queues if not _is_idle(q)]
    return _with_cluster_queues(replace(found, local_queues=local), cluster)


def _is_idle(queue: Queue) -> bool:
    return not (queue.admitted or queue.pending or queue.inactive or any(share.used for share in queue.shares))


def _idle_counts(listed: Occupancy, busy: Occupancy) -> str:
    """Return how many queues are left out, as in "49 cluster queues, 50 queues"; empty for none."""
    counts = {
        "cluster queue": len(listed.cluster_queues) - len(busy.cluster_queues),
        "queue": len(listed.local_queues) - len(busy.local_queues),
    }
    return ", ".join(plural(count, kind) for kind, count in counts.items() if count)


def queues(where: Where, *, output: str, shown: Shown = Shown()) -> None:
    """Print the queues of a namespace or of the cluster; in a project, those of the stack's namespace.

    Raises:
        Invalid: No queue or cohort has the name of `shown`, though there are queues.
    """
    from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import overview

    if of_stack(None, where):
        from pulumi_trainer.provider.commands.stack import cluster_of

        where = cluster_of(where.stack or None)
    client, namespace = open_cluster(where)
    documents, unreadable = overview(client, "" if where.everywhere else namespace)
    place = "the cluster has" if where.everywhere else f"namespace {namespace} has"
    every = occupancy(documents, unreadable)
    every = every if where.everywhere else _of_namespace(every)
    found = shown.of(every)
    if not (found.cluster_queues or found.local_queues or found.work):
        _check_names(shown, every, place)
    if output != "table":
        print_data(found.to_dict(), output)
        return
    listed_queues = found
    found = found if shown.idle or shown.queue else _busy(found)
    out = Console(width=None if sys.stdout.isatty() else 2**10, markup=False, emoji=False)  # names are no markup
    jobs = _work_table(found.work, namespaces=where.everywhere)
    parts = [
        (_cluster_table(found), found.cluster_queues),
        (_local_table(found.local_queues), found.local_queues),
        (jobs, ()),
    ]
    printed = [_printed(out, table, listed) for table, listed in parts if table.row_count]
    if idle := _idle_counts(listed_queues, found):
        printed.append(f"idle: {idle} (--all shows them)")
    if not printed:
        print_line(f"{place} no Kueue queues, and no jobs in queues")
    for number, part in enumerate(printed):
        print_lines([*([""] if number else []), *part.split("\n")])
    missing = [f"{kind} ({_MISSED[kind]})" for kind in found.unseen if kind in _MISSED]
    if missing:
        why = "no permission to list them, or no such kind; `pulumi-trainer rbac --quotas` prints what is needed"
        print_lines(["", f"not seen: {', '.join(missing)}: {why}"], error=True)


def _check_names(shown: Shown, every: Occupancy, place: str) -> None:
    """Raise Invalid if a name of `shown` is that of no queue or cohort, though there are some."""
    queues_ = {q.name for q in chain(every.cluster_queues, every.local_queues)}
    cohorts = {c.name for c in every.cohorts} | {q.behind for q in every.cluster_queues if q.behind}
    for option, what, given, known in (
        ("--queue", "queue", shown.queue, queues_), ("--cohort", "cohort", shown.cohort, cohorts),
    ):  # fmt: skip
        if given and known and given not in known:
            hint = did_you_mean(given, known, f"there are {', '.join(sorted(known)[:5])}")
            raise Invalid(Problem(option, f"{place} no {what} {given!r}", hint))


def _of_namespace(found: Occupancy) -> Occupancy:
    """Return the occupancy with the ClusterQueues that the jobs of the namespace use, and no others."""
    used = {q.behind for q in found.local_queues} | {w.cluster_queue for w in found.work}
    return _with_cluster_queues(found, [q for q in found.cluster_queues if q.name in used])


def _printed(out: Console, table: Table, listed: Iterable[Queue]) -> str:
    """Return a table, and below it why some of the queues in it take no jobs: in a cell that would stretch a column."""
    with out.capture() as text:
        out.print(table)
        for queue in listed:
            if queue.inactive:
                name = "/".join(filter(None, (queue.namespace, queue.name)))
                out.print(Text(f"{plain(name)} takes no jobs: {plain(queue.inactive)}", style="red"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def _table(*names: str) -> Table:
    """Return a table whose numbers stay on one line, while names and sentences wrap in a narrow terminal."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        number = name in _NUMBERS
        table.add_column(name, overflow="fold", no_wrap=number)
    return table


_NUMBERS = ("", "used", "borrowed", "lends", "at most", "holds", "waits", "state", "for")


def _cluster_table(found: Occupancy) -> Table:
    """Return the tree of cohorts and ClusterQueues."""
    table = _table("cluster queue", "flavor", "resource", "", "used", "borrowed", "lends", "at most", "holds", "waits")
    for depth, each in _tree(found):
        name = Text(f"{plain(each.name)}/", style="bold") if isinstance(each, Cohort) else _name(each)
        counts = ["", ""] if isinstance(each, Cohort) else [str(each.admitted or ""), str(each.pending or "")]
        head = Padding(name, (0, 0, 0, 2 * depth))
        for cells in [_share(share) for share in each.shares if not _unlimited(share)] or [[""] * 7]:
            add_row(table, head, *cells, *counts)
            head, counts = Padding("", 0), ["", ""]
    return table


def _tree(found: Occupancy) -> Iterator[tuple[int, Cohort | Queue]]:
    """Yield depth and cohort or ClusterQueue, a cohort before its queues, these before the cohorts below it."""
    members: dict[str, list[Cohort | Queue]] = {}
    for queue in sorted(found.cluster_queues, key=lambda q: q.name):
        members.setdefault(queue.behind, []).append(queue)
    for cohort in found.cohorts:
        members.setdefault(cohort.parent, []).append(cohort)
    left: list[tuple[int, Cohort | Queue]] = [(0, each) for each in reversed(members.get("", []))]
    while left:
        depth, each = left.pop()
        yield depth, each
        if isinstance(each, Cohort):
            left += [(depth + 1, member) for member in reversed(members.get(each.name, []))]


def _unlimited(share: Share) -> bool:
    """Return whether a share has no limit and is not in use."""
    most = quantity(BOUNDLESS.get(share.resource))
    return not share.used and most is not None and (share.nominal or ZERO) >= most


def _share(share: Share) -> list[Cell]:
    nominal, borrowed = share.nominal or ZERO, share.borrowed or ZERO
    style = "yellow" if borrowed else "green"
    scale, used = float(max(nominal, share.used, Fraction(1))), float(share.used)
    bar = ProgressBar(total=scale, completed=used, width=10, complete_style=style, finished_style=style)
    usage = f"{amount(share.resource, share.used)} of {amount(share.resource, nominal)}"
    lent = Text(amount(share.resource, borrowed) if borrowed else "", style="yellow")
    most = amount(share.resource, share.most) if share.most is not None else ""
    lends = amount(share.resource, share.lends) if share.lends is not None else ""
    return [share.flavor, share.resource, bar, usage, lent, lends, most]


def _local_table(found: Iterable[Queue]) -> Table:
    table = _table("queue", "namespace", "cluster queue", "used", "holds", "waits")
    for queue in found:
        used = ", ".join(f"{amount(s.resource, s.used)} {s.resource}" for s in queue.shares if s.used)
        counts = str(queue.admitted or ""), str(queue.pending or "")
        add_row(table, _name(queue), queue.namespace, queue.behind, used, *counts)
    return table


def _name(queue: Queue) -> Text:
    return Text(plain(queue.name), style="red" if queue.inactive else "")


def _work_table(found: Iterable[Work], *, namespaces: bool) -> Table:
    head = ("namespace", "job") if namespaces else ("job",)
    table = _table(*head, "queue", "state", "asks for", "priority", "for", "why")
    for work in found:
        asked = ", ".join(f"{n} {resource}" for resource, n in work.asks.items())
        rank = " ".join(filter(None, (work.priority_class, str(work.priority or ""))))
        state = Text("holds", style="green") if work.holds else Text("waits", style="yellow")
        since = duration(max(0.0, time.time() - work.since)) if work.since else ""
        place = [work.namespace] if namespaces else []
        add_row(table, *place, work.name, work.queue, state, asked, rank, since, work.why)
    return table
