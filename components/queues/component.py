"""What the components of all of Kueue's kinds have in common: their way from arguments to an object of the cluster.

Arguments are checked at once, without what is not known yet or has the wrong shape; if anything is wrong with one object of the
program, none is made. What refers to another object of the program, by component or by name, is made after it and deleted
before it, which is the order that Kueue's finalizers need. Objects are made by the plugin of pulumi-kubernetes.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pulumi
from pulumi_trainer.args.arguments import (
    check_names,
    nested_problems,
    sound,
    to_document,
    walk,
)
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.outputs import Resolved, put_back, resolve
from pulumi_trainer.program import dependencies, session, targets
from pulumi_trainer.program.absent_outputs import known
from pulumi_trainer.program.removals import jobs_of
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.labels import MADE_BY, ON_DELETE
from pulumi_trainer.provider.api.submission import ANYTHING, MAIN, Work
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.objects import (
    GROUP,
    KINDS,
    NAMESPACED,
    NEWEST,
    VERSIONS,
    at_version,
    printed,
    references,
    served_version,
)
from pulumi_trainer.provider.kueue.objects_review import conflicts, frozen, refusals
from pulumi_trainer.queues.arguments import Spec
from pulumi_trainer.queues.leaving import (
    Place,
    leaving,
    lost,
    recorded_kinds,
    with_work,
)
from pulumi_trainer.queues.leaving import refusals as refusals_of_queues

DELETE_WITHIN = "3m"
"""How long pulumi-kubernetes waits for an object to go, which somebody else's reference may hold."""
_BELOW = re.compile(r"^(spec|metadata)(\.|$)")
FIXED = {"LocalQueue": ["spec.clusterQueue"]}
"""Fields that the server never lets change; the object is made anew, which harms nothing where it is here."""


class Composed(pulumi.ComponentResource):
    """A component that makes such objects out of arguments of its own. where: of it in the program. making: while it does; what
    is given to it as a child later is somebody else's."""

    where: str
    making = False
    misnamed: list[Problem]

    @abstractmethod
    def argument(self, kind: str, name: str, path: str) -> str:
        """The argument of its own that an argument of one of them comes from. name: of the resource."""


class QueueObject(pulumi.ComponentResource):
    """An object of Kueue's. name: of the object; default the resource's name. kind: of the object."""

    kind: ClassVar[str]
    arguments: ClassVar[type[Spec]]
    misnamed: list[Problem]

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        self.misnamed += check_names(given)
        args = self.arguments(**{field_: given[field_] for field_ in self.arguments.fields})
        target, namespace = given["target"], given.get("namespace")
        above = opts.parent if opts is not None else None
        self.above = above if isinstance(above, Composed) and above.making else None
        """What makes it, if that is a component of this package."""
        self.resource_name = resource_name
        where = self.above.where if self.above else f'{self.kind}("{resource_name}") ({session.call_site()})'
        self.name = given["name"] or resource_name
        self.version = NEWEST
        self.connection: Any = None
        self._args, self._where = sound(args), where
        self._opts = opts or pulumi.ResourceOptions()
        self._target = target if isinstance(target, Kubernetes) and not targets.problems(target) else None
        super().__init__(f"trainer:index:{self.kind}", resource_name, None, opts)
        self._inherited = self.get_provider("kubernetes:x:x")
        self.cluster = _cluster(target, self._inherited)
        """Equal for objects of the same cluster."""
        wrong = merge_problems(self.misnamed, [*nested_problems(args), *targets.problems(target)])
        if target is not None and not isinstance(target, Kubernetes):
            wrong.append(Problem("target", "queues are objects of a cluster", "give a Kubernetes(...)"))
        self._given: dict[str, Any] = self._document(namespace)
        self.document: dict[str, Any] = walk(self._given, _later)
        """As v1beta2 has it; what is not known yet is an `Unknown`, until it is."""
        wrong += self._own(refusals(self.document))
        self._set = current()
        self._set.members.append(self)
        if wrong:
            self._refuse(wrong)
        session.current().queues.append(self.document)
        self.settled: asyncio.Future[None] | None = None
        """Done once the document is known as a whole, or wrong; None: that may take until others are made."""
        if first_unknown(self.document) is None:
            self.settled = asyncio.get_event_loop().create_future()
        self.made: asyncio.Task[pulumi.Resource | None] = session.current().spawn(self._make())
        self.register_outputs({"name": self.name})

    def _document(self, namespace: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"name": self.name}
        if namespace is not None:
            about["namespace"] = namespace
        for field_ in ("labels", "annotations"):
            if value := getattr(self._args, field_):
                about[field_] = to_document(value)
        made = {"apiVersion": f"{GROUP}/{NEWEST}", "kind": self.kind, "metadata": about}
        body = self._args.document()
        if self.kind == "WorkloadPriorityClass":
            return {**made, **api_names(self.kind, body)}
        return {**made, "spec": api_names(f"{self.kind}.spec", body)}

    def _own(self, problems: list[Problem]) -> list[Problem]:
        """With the paths of the arguments."""
        return [replace(p, where=self._args.place(_BELOW.sub("", p.where))) for p in problems]

    async def _make(self) -> pulumi.Resource | None:
        """The object as a resource; None where something is wrong, or the stack is for this machine."""
        self._set.check()
        target = self._destination()
        try:
            settled = await self._settle(target)
        finally:
            if self.settled is not None:
                self.settled.set_result(None)
        return None if settled is None or target is None else await self._register(target, *settled)

    async def _settle(self, target: Kubernetes | None) -> tuple[targets.Place, Resolved] | None:
        """Return where the object goes and what is known of it; None if something is wrong, or the stack is for this machine."""
        place = await targets.place(target or Kubernetes())
        if self.kind == NAMESPACED:
            self._given["metadata"].setdefault("namespace", place.unknown.get("namespace", place.namespace))
        resolved = await resolve(self._given, "")
        self.document.clear()
        self.document.update(resolved.document)
        wrong = self._own(resolved.problems or refusals(resolved.document)) + place.problems
        if not self._set.wrong:
            namespace = resolved.document["metadata"].get("namespace", "")
            wrong += session.current().claim(place.target, self.kind, namespace, self.name, self._where)
        if wrong:
            self._refuse(wrong)
        if self._set.wrong or target is None:
            return None
        session.current().clusters.append(place.target)
        if wrong := targets.without_plugin():
            self._refuse(wrong)
            return None
        self.connection = place.target
        return place, resolved

    async def _register(self, target: Kubernetes, place: targets.Place, resolved: Resolved) -> pulumi.Resource | None:
        await self._set.versioned(self)
        older, wrong = at_version(printed(self.document), self.version)
        if wrong or self._set.wrong:
            self._refuse(self._own(wrong))
            return None
        if self.kind == NAMESPACED:
            if self.settled is None and (wrong := await self._set.taken(self, self.connection, self.version)):
                self._refuse(wrong)
                return None
            if wrong := await self._lacks_namespace([*place.needs, *resolved.depends_on]):
                self._refuse(wrong)
                return None
        older["metadata"] = {
            **older["metadata"],
            "annotations": {**older["metadata"].get("annotations", {}), MADE_BY: stack_name(), **self._marks()},
        }
        needs = [made for other in self._set.named_by(self) if (made := await other.made) is not None]
        depends_on = [*needs, *place.needs, *resolved.depends_on]
        options = self.below(depends_on, provider=target.provider or targets.provider(place))
        return _Object(self._name, put_back(older, resolved.unknown), options)

    def _marks(self) -> dict[str, str]:
        """Annotations that say what becomes of it when it leaves the program."""
        return {ON_DELETE: "retain"} if self._opts.retain_on_delete else {}

    async def _lacks_namespace(self, before: list[pulumi.Resource]) -> list[Problem]:
        """Return that the namespace does not exist, unless what this depends on may make it. before: what is made before this,
        besides what the options name."""
        namespace = self.document["metadata"].get("namespace")
        made = await dependencies.made_by([*await dependencies.explicit(self._opts), *before])
        if not isinstance(namespace, str) or made & {ANYTHING, "Namespace/", f"Namespace/{namespace}"}:
            return []
        if not await asyncio.to_thread(dynamic.lacks_namespace, self.connection, namespace):
            return []
        mend = "create it, name another one, or let the queue depend on it (depends_on)"
        return [Problem("namespace", f"namespace {namespace} does not exist", mend)]

    def _destination(self) -> Kubernetes | None:
        """The cluster: that of `target`, else of the provider among the options, else of the stack's configuration; None:
        the stack is for this machine."""
        if self._target is not None:
            return self._target
        if self._inherited is not None:
            return Kubernetes(provider=self._inherited)
        return None if pulumi.Config("trainer").get("target") == "local" else Kubernetes()

    def _refuse(self, wrong: list[Problem]) -> None:
        self._set.refuse(self._told(p) for p in wrong)

    def _told(self, problem: Problem) -> Problem:
        """In the words of the program."""
        if self.above is not None:
            problem = replace(problem, where=self.above.argument(self.kind, self.resource_name, problem.where))
        return problem.below(self._where)

    def below(
        self, depends_on: list[pulumi.Resource], *, provider: pulumi.ProviderResource | None = None
    ) -> pulumi.ResourceOptions:
        """Options of what the component makes: after what the component itself is to be made after."""
        own = self._opts.depends_on or []
        after: list[Any] = (
            [own] if isinstance(own, pulumi.Resource) else list(own) if isinstance(own, (list, tuple)) else []
        )
        return pulumi.ResourceOptions(
            parent=self,
            provider=provider,
            depends_on=[*after, *depends_on],
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )

    def after_users(
        self, kind: str, make: Callable[[pulumi.Resource, list[pulumi.Resource]], pulumi.Resource]
    ) -> asyncio.Task[pulumi.Resource | None]:
        """Makes something once the object, and all of that kind that the program says to use it, are made."""

        async def later() -> pulumi.Resource | None:
            made = await self.made
            users = [await other.made for other in self._set.members if other.kind == kind and other.refers_to(self)]
            if made is None or self._set.wrong:
                return None
            return make(made, [user for user in users if user is not None])

        return session.current().spawn(later())

    def deleted_after(self, kind: str) -> list[dict[str, str]]:
        """Return what the engine deletes after a resource of `after_users`: the objects of that kind, and all that the object
        itself needs; those of a namespace that is not known yet are left out."""
        found = [other for other in self._set.members if other.kind == kind and other.refers_to(self)]
        needed: list[QueueObject] = [self]
        for each in needed:
            needed += [other for other in self._set.named_by(each) if other not in needed]
        places = (
            (m.kind, m.version, m.document["metadata"].get("namespace", ""), m.name) for m in [*found, *needed[1:]]
        )
        known = sorted(place for place in places if isinstance(place[2], str))
        return [dict(zip(("kind", "version", "namespace", "name"), place, strict=True)) for place in known]

    def refers_to(self, other: QueueObject) -> bool:
        named = ((kind, name) for kind, name, _ in references(self.document))
        return self.cluster == other.cluster and (other.kind, other.name) in named

    async def resources(self) -> list[pulumi.Resource]:
        """What has to be there before a job can use it, and must go after that job: the object, and what guards its queue."""
        own = await self.made
        guards = [await guard for other in self._set.named_by(self) if (guard := getattr(other, "guard", None))]
        return [each for each in (own, *guards) if each is not None]


@dataclass
class _Set:
    """All of Kueue's objects of a program. wrong: something is, so nothing is made."""

    members: list[QueueObject] = field(default_factory=list)
    wrong: bool = False
    checked: int = 0
    served: dict[str, asyncio.Task[Any]] = field(default_factory=dict)

    def refuse(self, wrong: Iterable[Problem]) -> None:
        """Nothing is made any more; what is told twice is shown once."""
        self.wrong = True
        session.current().tell(wrong)

    async def versioned(self, member: QueueObject) -> None:
        """Gives the member the version of its kind that its cluster has."""
        if member.cluster not in self.served:
            self.served[member.cluster] = asyncio.ensure_future(self._look(member))
            if pulumi.runtime.is_dry_run():
                session.current().spawn(self._leave(member))
        member.version = _version(member.kind, await self.served[member.cluster])

    async def _look(self, first: QueueObject) -> Any:
        """What the cluster serves. What it refuses of any member, or of a queue that leaves, is refused before one is made."""
        served = await asyncio.to_thread(dynamic.queue_versions, first.connection)
        members = [each for each in self.members if each.cluster == first.cluster]
        for settled in [member.settled for member in members if member.settled is not None]:
            await settled
        for member in members:
            version = _version(member.kind, served)
            if wrong := at_version(member.document, version)[1]:
                member._refuse(member._own(wrong))
            elif (member.kind != NAMESPACED or member.settled is not None) and (
                wrong := await self.taken(member, first.connection, version)
            ):
                member._refuse(wrong)
        if wrong := [*await self._kept(first, _version("ClusterQueue", served)), *await self._lost(first, served)]:
            self.refuse(wrong)
        return served

    async def _kept(self, first: QueueObject, version: str) -> list[Problem]:
        """Return which queues that are no longer among the members cannot be deleted, which an update would do last."""
        named = {m.name for m in self.members if m.kind == "ClusterQueue" and m.cluster == first.cluster}
        work = await asyncio.to_thread(with_work, first.connection, version, stack_name(), named)
        if not work:
            return []
        own = jobs_of(await session.current().look_back())
        wanted = session.current().queue_of

        def stays(each: Work) -> bool:
            """Whether the job has its work when the queue goes: not one that leaves the program too, or its queue."""
            kind, _, where = each.job.partition(" ")
            name = where.rpartition("/")[2]
            if kind not in MAIN or where not in own:
                return True
            return name in wanted and wanted[name] == each.queue.rpartition("/")[2]

        return [*refusals_of_queues(work, stays)]

    async def _lost(self, first: QueueObject, served: Any) -> list[Problem]:
        """Return which objects that leave the program belong to another stack by now: an update would delete them."""
        recorded, named = await session.current().look_back(), self._places(first)
        versions = {kind: _version(kind, served) for kind in {m.kind for m in self.members} | recorded_kinds(recorded)}
        return await asyncio.to_thread(lambda: [*lost(first.connection, versions, recorded, stack_name(), named)])

    def _places(self, first: QueueObject) -> set[Place]:
        """Return kind, namespace and name of the members of a cluster."""
        members = ((m.kind, m.document["metadata"]) for m in self.members if m.cluster == first.cluster)
        return {(kind, metadata.get("namespace", ""), str(metadata["name"])) for kind, metadata in members}

    async def _leave(self, first: QueueObject) -> None:
        """Tells of queues that this stack has made, and that are no longer among them, once all are known."""
        await asyncio.gather(*(member.made for member in self.members))
        if self.wrong:
            return
        named = self._places(first)
        version = _version("ClusterQueue", await self.served[first.cluster])
        told = await asyncio.to_thread(lambda: [*leaving(first.connection, version, stack_name(), named)])
        for warning in filter(session.current().news, told):
            pulumi.log.warn(str(warning))

    async def taken(self, member: QueueObject, connection: Any, version: str) -> list[Problem]:
        """That an object of that name is there and another's, which pulumi-kubernetes would take over in silence; or ours, and
        cannot become this one."""
        live = await asyncio.to_thread(dynamic.queue_objects, connection, member.kind, version)
        place = member.document["metadata"].get("namespace", "")
        for each in live:
            found = each["metadata"]
            if (found["name"], found.get("namespace", "")) == (member.name, place) and "deletionTimestamp" not in found:
                return _others(member, found) or member._own([*frozen(member.document, each)])
        return []

    def check(self) -> None:
        """What only shows when all are known: two objects of one name, cohorts in a circle."""
        if self.checked == len(self.members):
            return
        self.checked = len(self.members)
        for cluster in dict.fromkeys(member.cluster for member in self.members):
            members = [member for member in self.members if member.cluster == cluster]
            for at, problem in conflicts([member.document for member in members]):
                members[at]._refuse(members[at]._own([problem]))

    def named_by(self, member: QueueObject) -> Iterator[QueueObject]:
        asked = {(kind, name) for kind, name, _ in references(member.document)}
        for other in self.members:
            if (other.kind, other.name) in asked and other.cluster == member.cluster:
                yield other


_sets: WeakKeyDictionary[asyncio.AbstractEventLoop, _Set] = WeakKeyDictionary()


def current() -> _Set:
    """All of the program that is being run."""
    return _sets.setdefault(asyncio.get_event_loop(), _Set())


def _cluster(target: Any, inherited: Any) -> str:
    given = vars(target) if isinstance(target, Kubernetes) else {"provider": inherited}
    said = {k: v if isinstance(v, str) else id(v) for k, v in given.items() if v is not None}
    return str({k: v for k, v in said.items() if k not in ("namespace", "mode")})


def _later(path: str, leaf: Any) -> Any:
    return Unknown(path) if isinstance(leaf, pulumi.Output) else leaf


def stack_name() -> str:
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"


def _others(member: QueueObject, found: Mapping[str, Any]) -> list[Problem]:
    """Of a live object that this stack has not made."""
    maker = (found.get("annotations") or {}).get(MADE_BY)
    if maker == stack_name():
        return []
    place = f" -n {found['namespace']}" if "namespace" in found else ""
    why = f"{member.kind} {member.name} exists since {found.get('creationTimestamp')} and " + (
        f"belongs to the stack {maker}" if maker else "was not made by this stack"
    )
    take = f"kubectl annotate --overwrite {KINDS[member.kind]}.{GROUP}{place} {member.name} {MADE_BY}={stack_name()}"
    return [Problem("name", why, f"choose another name, or give it to this stack: {take}")]


def _version(kind: str, served: Any) -> str:
    """served: what the cluster has; None where it is out of reach."""
    if served is None:
        return NEWEST
    found = served_version(kind, served)
    if found is None:
        warning = Problem("", f"the cluster has no {KINDS[kind]} of {GROUP}", "install Kueue 0.15 or newer before")
        if session.current().news(warning):
            pulumi.log.warn(str(warning))
    return found or NEWEST


class _Object(pulumi.CustomResource):
    """What pulumi-kubernetes calls a CustomResource; that class knows no fields beside `spec`. Objects of another version of
    the API are the same resource."""

    def __init__(self, name: str, document: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        version, kind = document["apiVersion"], document["kind"]
        others = [f"{GROUP}/{each}" for each in VERSIONS if f"{GROUP}/{each}" != version]
        fixed = FIXED.get(kind)
        own = pulumi.ResourceOptions(
            aliases=[pulumi.Alias(type_=f"kubernetes:{each}:{kind}") for each in others],
            custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_WITHIN),
            replace_on_changes=fixed,
            delete_before_replace=bool(fixed) or None,
            version=None if opts.provider else targets.plugin_version(),
        )
        props = {key: known(value) if isinstance(value, dict) else value for key, value in document.items()}
        super().__init__(f"kubernetes:{version}:{kind}", name, props, pulumi.ResourceOptions.merge(own, opts))
