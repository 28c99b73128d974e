"""`queues`: shows which jobs use or wait for the quota of Kueue's queues, as bars or as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

from pulumi_trainer.provider.cli.formats import add_row, print_data, table_console
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, duration, plural
from pulumi_trainer.provider.kueue.objects import BOUNDLESS
from pulumi_trainer.provider.kueue.occupancy import Cohort, Occupancy, Queue, Share, Work, occupancy
from pulumi_trainer.provider.kueue.quota import ZERO
from pulumi_trainer.provider.kueue.quota import amount as quantity
from pulumi_trainer.provider.kueue.quota import format_amount as amount
from pulumi_trainer.provider.service.jobs import in_cluster_of_stack, open_cluster
from pulumi_trainer.provider.service.reach import Where
from rich.console import Console
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pulumi_trainer.provider.kubernetes.client.client import Client

WATCH_SECONDS = 5
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
    """

    queue: str = ""
    cohort: str = ""
    idle: bool = False

    def of(self, found: Occupancy) -> Occupancy:
        """Return the queues that match, with the jobs in them."""
        if not self.queue and not self.cohort:
            return found
        named = {q.behind for q in found.local_queues if q.name == self.queue} | {self.queue}
        cluster = []
        for queue in found.cluster_queues:
            has_name = not self.queue or queue.name in named
            if has_name and (not self.cohort or self.cohort in found.cohorts_above(queue)):
                cluster.append(queue)
        names = {q.name for q in cluster}
        if not self.cohort:
            names |= named
        local = [q for q in found.local_queues if q.behind in names and self.queue in ("", q.name, q.behind)]
        work = [w for w in found.work if w.cluster_queue in names and self.queue in ("", w.queue, w.cluster_queue)]
        return _with_cluster_queues(replace(found, local_queues=local, work=work), cluster)


def _with_cluster_queues(found: Occupancy, kept: Sequence[Queue]) -> Occupancy:
    """Return the occupancy with some of its ClusterQueues and the cohorts above these."""
    above = set(chain.from_iterable(map(found.cohorts_above, kept)))
    cohorts = [cohort for cohort in found.cohorts if cohort.name in above]
    return replace(found, cluster_queues=kept, cohorts=cohorts)


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


def queues(where: Where, *, output: str, shown: Shown = Shown(), watch: bool = False) -> None:
    """Print the queues of a namespace or of the cluster; in a project, those of the stack's cluster."""
    where = in_cluster_of_stack(where)
    client, namespace = open_cluster(where)
    if not watch:
        _print_queues(client, namespace, where, output, shown)
        return
    screen = Console()
    while True:
        screen.clear()
        print_line(f"{time.strftime('%H:%M:%S', time.gmtime())} UTC, every {WATCH_SECONDS} s; Ctrl-C ends it\n")
        try:
            _print_queues(client.within(client.patience), namespace, where, output, shown)  # a copy: it reads anew
        except TargetFault as fault:
            print_line(str(fault))
        time.sleep(WATCH_SECONDS)


def _print_queues(client: Client, namespace: str, where: Where, output: str, shown: Shown) -> None:
    from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import recorded_preemptors
    from pulumi_trainer.provider.targets.kubernetes.observe.job_starts import read_starts
    from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import overview

    place = "the cluster has"
    if not where.everywhere:
        place = f"namespace {namespace} has"
    documents, unreadable = overview(client, "" if where.everywhere else namespace)
    every = occupancy(documents, unreadable, recorded_preemptors(client, documents))
    if not where.everywhere:
        every = _of_namespace(every)
    found = shown.of(every)
    waiting = [work for work in found.work if not work.holds]
    if waiting:
        whole = where.everywhere and not unreadable
        queues_ = {("", w.cluster_queue) if whole else (w.namespace, w.queue) for w in waiting}
        found = _with_starts(found, read_starts(client, queues_, documents if whole else ()))
    if not (found.cluster_queues or found.local_queues or found.work):
        _check_names(shown, every, place)
    if output != "table":
        print_data(found.to_dict(), output)
        return
    listed_queues = found
    if not shown.idle and not shown.queue:
        found = _busy(found)
    out = table_console(2**10)
    jobs = _work_table(found.work, namespaces=where.everywhere)
    parts = [
        (_cluster_table(found), found.cluster_queues),
        (_local_table(found.local_queues), found.local_queues),
        (jobs, ()),
    ]
    printed = []
    for table, listed in parts:
        if table.row_count:
            printed.append(_printed(out, table, listed))
    idle = _idle_counts(listed_queues, found)
    if idle:
        printed.append(f"idle: {idle} (--all shows them)")
    if not printed:
        print_line(f"{place} no Kueue queues, and no jobs in queues")
    for number, part in enumerate(printed):
        if number:
            print_line()
        print_lines(part.split("\n"))
    missing = [f"{kind} ({_MISSED[kind]})" for kind in found.unseen if kind in _MISSED]
    if missing:
        why = "no permission to list them, or no such kind; `pulumi-trainer rbac --quotas` prints what is needed"
        print_lines(["", f"not seen: {', '.join(missing)}: {why}"], error=True)


def _with_starts(found: Occupancy, starts: Mapping[str, str]) -> Occupancy:
    """Return the occupancy with behind whom each job waits, and when it starts. starts: By namespace/name of the job."""
    work = []
    for each in found.work:
        start = "" if each.holds else starts.get(f"{each.namespace}/{each.name}", "")
        work.append(replace(each, start=start))
    return replace(found, work=work)


def _check_names(shown: Shown, every: Occupancy, place: str) -> None:
    """Raise Invalid if a name of `shown` is that of no queue or cohort, though there are some."""
    queues_ = {q.name for q in chain(every.cluster_queues, every.local_queues)}
    cohorts = {c.name for c in every.cohorts}
    cohorts |= {q.behind for q in every.cluster_queues if q.behind}
    for option, what, given, known in (
        ("--queue", "queue", shown.queue, queues_), ("--cohort", "cohort", shown.cohort, cohorts),
    ):  # fmt: skip
        if given and known and given not in known:
            hint = did_you_mean(given, known, f"there are {', '.join(sorted(known)[:5])}")
            raise Invalid(Problem(option, f"{place} no {what} {given!r}", hint))


def _of_namespace(found: Occupancy) -> Occupancy:
    """Return the occupancy with the ClusterQueues that the jobs of the namespace use, and no others."""
    used = {q.behind for q in found.local_queues} | {w.cluster_queue for w in found.work}
    kept = [q for q in found.cluster_queues if q.name in used]
    return _with_cluster_queues(found, kept)


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
        name, counts = _name_and_counts(each)
        head = Padding(name, (0, 0, 0, 2 * depth))
        shares = [_share(share) for share in each.shares if not _unlimited(share)]
        for cells in shares or [[""] * 7]:
            add_row(table, head, *cells, *counts)
            head, counts = Padding("", 0), ["", ""]
    return table


def _name_and_counts(each: Cohort | Queue) -> tuple[Text, list[str]]:
    """Return the name of a cohort or ClusterQueue, and how many jobs hold and wait for quota of the ClusterQueue."""
    if isinstance(each, Cohort):
        return Text(f"{plain(each.name)}/", style="bold"), ["", ""]
    return _name(each), [str(each.admitted or ""), str(each.pending or "")]


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
    """Return whether a share has practically no limit: what is used of it tells nothing."""
    most = quantity(BOUNDLESS.get(share.resource))
    return most is not None and (share.nominal or ZERO) >= most


def _share(share: Share) -> list[Cell]:
    nominal, borrowed = share.nominal or ZERO, share.borrowed or ZERO
    style, lent = "green", ""
    if borrowed:
        style, lent = "yellow", amount(share.resource, borrowed)
    scale, used = float(max(nominal, share.used, Fraction(1))), float(share.used)
    bar = ProgressBar(total=scale, completed=used, width=10, complete_style=style, finished_style=style)
    usage = f"{amount(share.resource, share.used)} of {amount(share.resource, nominal)}"
    limits = [_limit(share.resource, share.lends), _limit(share.resource, share.most)]
    return [share.flavor, share.resource, bar, usage, Text(lent, style="yellow"), *limits]


def _limit(resource: str, value: Fraction | None) -> str:
    """Return an amount of a resource as text; empty if there is no limit."""
    if value is None:
        return ""
    return amount(resource, value)


def _local_table(found: Iterable[Queue]) -> Table:
    table = _table("queue", "namespace", "cluster queue", "used", "holds", "waits")
    for queue in found:
        used: dict[str, list[str]] = {}
        for share in queue.shares:
            if share.used:
                used.setdefault(share.flavor, []).append(f"{amount(share.resource, share.used)} {share.resource}")
        shown = "; ".join(f"{flavor}: {', '.join(amounts)}" for flavor, amounts in used.items())
        counts = str(queue.admitted or ""), str(queue.pending or "")
        add_row(table, _name(queue), queue.namespace, queue.behind, shown, *counts)
    return table


def _name(queue: Queue) -> Text:
    style = "red" if queue.inactive else ""
    return Text(plain(queue.name), style=style)


def _work_table(found: Iterable[Work], *, namespaces: bool) -> Table:
    head = ["job", "queue", "state", "asks for", "priority", "for", "why"]
    if namespaces:
        head.insert(0, "namespace")
    table = _table(*head)
    for work in found:
        cells = _work_cells(work)
        if namespaces:
            cells.insert(0, work.namespace)
        add_row(table, *cells)
    return table


def _work_cells(work: Work) -> list[Cell]:
    asked = ", ".join(f"{n} {resource}" for resource, n in work.asks.items())
    if work.flavors:
        asked += f" of {', '.join(work.flavors)}"
    rank = " ".join(filter(None, (work.priority_class, str(work.priority or ""))))
    state = Text("waits", style="yellow")
    if work.holds:
        state = Text("holds", style="green")
    since = ""
    if work.since:
        since = duration(max(0.0, time.time() - work.since))
    return [work.name, work.queue, state, asked, rank, since, "; ".join(filter(None, (work.why, work.start)))]
