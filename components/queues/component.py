"""The base component of Kueue's objects: it checks arguments and creates the object in a cluster.

Arguments are checked at once, except unknown and malformed values; if any object of the program has a problem, none is created.
An object is created after the objects that it refers to, by component or by name, and deleted before them, as Kueue's finalizers
require. The plugin of pulumi-kubernetes creates the objects.
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
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import check_names, nested_problems, to_document, walk, without_refused
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.kubernetes_object import PluginResource
from pulumi_trainer.plan.outputs import Resolved, resolve, restore_outputs
from pulumi_trainer.program import dependencies, messages, session, targets
from pulumi_trainer.program.drift import Drift, Reviewed, drift_annotations, review_edits
from pulumi_trainer.program.object_owner import mark_of
from pulumi_trainer.program.removals import jobs_of
from pulumi_trainer.program.removed_queues import (
    Place,
    queues_with_work,
    recorded_kinds,
    removal_warnings,
    transferred_objects,
)
from pulumi_trainer.program.removed_queues import refusals as refusals_of_queues
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.jobs.submission import ANYTHING, EXISTING
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem, several
from pulumi_trainer.provider.kubernetes.hand_edits import ADOPTED, differences, restoration, with_edits
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.admission_review import review
from pulumi_trainer.provider.kueue.api_resources import api_resource
from pulumi_trainer.provider.kueue.object_checks import conflicts, immutable_changes, refusals
from pulumi_trainer.provider.kueue.objects import (
    GROUP,
    KINDS,
    NAMESPACED,
    NEWEST,
    VERSIONS,
    at_version,
    references,
    served_version,
    with_canonical_quantities,
)
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import MADE_BY, ON_DELETE
from pulumi_trainer.queues.affected_jobs import affected_jobs
from pulumi_trainer.queues.arguments import Spec

_MISSING = "remove it from the program, or leave adopt out: then an update creates it"
DELETE_WITHIN = "3m"
"""How long pulumi-kubernetes waits for the deletion of an object, which may wait for references of other objects."""
_BELOW = re.compile(r"^(spec|metadata)(\.|$)")
FIXED = {"LocalQueue": ["spec.clusterQueue"]}
"""Immutable fields; a change replaces the object."""


class Composed(pulumi.ComponentResource):
    """A component that creates Kueue's objects as its children.

    Attributes:
        where: Kind, name and source line of the component in the program.
        making: Whether the component is creating its objects; later children do not belong to the component.
    """

    where: str
    making = False
    misnamed: list[Problem]

    @abstractmethod
    def argument(self, kind: str, name: str, path: str) -> str:
        """Return the component's argument that sets an argument of one of its objects."""


class QueueObject(pulumi.ComponentResource):
    """An object of Kueue."""

    kind: ClassVar[str]
    misnamed: list[Problem]

    def construct(self, args: Any) -> None:
        """Check the arguments, register the component, and create the object once its values are known."""
        self.misnamed += check_names(vars(args))
        resource_name, target, opts = args.resource_name, args.target, args.opts
        self.drift: Drift | None = args.drift
        self.above = _composing(opts)
        """The component of this package that creates this one, if any."""
        self.resource_name = resource_name
        if self.above:
            where = self.above.where
        else:
            where = f'{self.kind}("{resource_name}") ({session.call_site()})'
        self.name: str = args.name or resource_name
        self.version = NEWEST
        self.connection: Any = None
        self.reviewed = Reviewed()
        """What was changed in it by hand, and whether it is taken over."""
        self.mark: pulumi.Input[str] = ""
        """Its owner mark, once it is created."""
        self._args: Spec = without_refused(args)
        self._where = where
        self._opts = opts or pulumi.ResourceOptions()
        self._target: Kubernetes | None = None
        if isinstance(target, Kubernetes) and not targets.problems(target):
            self._target = target
        super().__init__(f"trainer:index:{self.kind}", resource_name, None, opts)
        self._inherited = self.get_provider("kubernetes:x:x")
        self.cluster = targets.cluster_key(target, self._inherited)
        """Equal for objects of the same cluster."""
        if self._inherited is None and not (self._target and self._target.provider):
            targets.number_cluster(self.cluster)
        wrong = merge_problems(self.misnamed, [*nested_problems(args), *targets.problems(target)])
        if target is not None and not isinstance(target, Kubernetes):
            wrong.append(Problem("target", "queues are objects of a cluster", "give a Kubernetes(...)"))
        self._given: dict[str, Any] = self._document(getattr(args, "namespace", None))
        self.document: dict[str, Any] = walk(self._given, _unknown_if_output)
        """The object in v1beta2; values are `Unknown` until their Outputs are known."""
        wrong += self._with_argument_paths(refusals(self.document) + plaintext_secrets.problems(self.document, ""))
        self._set = current()
        self._set.members.append(self)
        if wrong:
            self._refuse(wrong)
        session.current().queues.setdefault(self.cluster, []).append(self.document)
        self.settled: asyncio.Future[None] | None = None
        """Done once the whole document is known, or wrong; None if the document may depend on other objects of the program."""
        if first_unknown(self.document) is None:
            self.settled = asyncio.get_event_loop().create_future()
        self.made: asyncio.Task[pulumi.Resource | None] = session.current().spawn(self._make())
        self.register_outputs({"name": self.name})

    def _document(self, namespace: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"name": self.name}
        if namespace is not None:
            about["namespace"] = namespace
        for field_ in ("labels", "annotations"):
            value = getattr(self._args, field_)
            if value:
                about[field_] = to_document(value)
        made = {"apiVersion": f"{GROUP}/{NEWEST}", "kind": self.kind, "metadata": about}
        body = self._args.document()
        if self.kind == "WorkloadPriorityClass":
            return {**made, **api_names(self.kind, body)}
        return {**made, "spec": api_names(f"{self.kind}.spec", body)}

    def _with_argument_paths(self, problems: list[Problem]) -> list[Problem]:
        """Return problems of the document by the paths of the arguments."""
        return [replace(p, where=self._args.place(_BELOW.sub("", p.where))) for p in problems]

    async def _make(self) -> pulumi.Resource | None:
        """Return the object as a resource; None if there are problems, or the stack's target is Local."""
        self._set.check()
        target = self._destination()
        try:
            settled = await self._settle(target)
        finally:
            if self.settled is not None:
                self.settled.set_result(None)
        if settled is None or target is None:
            return None
        return await self._register(target, *settled)

    async def _settle(self, target: Kubernetes | None) -> tuple[targets.Place, Resolved] | None:
        """Return the object's cluster and resolved document; None if there are problems, or the stack's target is Local."""
        if target is None:
            session.current().unmade_queues.add(self.cluster)
        place = await targets.place(target or Kubernetes())
        if self.kind == NAMESPACED:
            self._given["metadata"].setdefault("namespace", place.unknown.get("namespace", place.namespace))
        resolved = await resolve(self._given, "")
        self.document.clear()
        self.document.update(resolved.document)
        found = resolved.problems or refusals(resolved.document) + plaintext_secrets.problems(resolved.document, "")
        wrong = self._with_argument_paths(found) + place.problems
        if not self._set.wrong:
            namespace = resolved.document["metadata"].get("namespace", "")
            wrong += session.current().claim(place.target, self.kind, namespace, self.name, self._where)
        if wrong:
            self._refuse(wrong)
        if self._set.wrong or target is None:
            return None
        session.current().clusters.append(place.target)
        session.current().queue_targets[self.cluster] = place.target
        missing_plugin = targets.plugin_problems()
        if missing_plugin:
            self._refuse(missing_plugin)
            return None
        self.connection = place.target
        return place, resolved

    async def _register(self, target: Kubernetes, place: targets.Place, resolved: Resolved) -> pulumi.Resource | None:
        await self._set.set_version(self)
        older, wrong = at_version(with_canonical_quantities(self.document), self.version)
        if wrong or self._set.wrong:
            self._refuse(self._with_argument_paths(wrong))
            return None
        if self.kind == NAMESPACED:
            if self.settled is None:
                served = await self._set.served[self.cluster]
                wrong = await self._set.name_conflicts(self, self.connection, served)
                self._set.show_taken_over()
                if wrong:
                    self._refuse(wrong)
                    return None
            wrong = await self._namespace_problems([*place.needs, *resolved.depends_on])
            if wrong:
                self._refuse(wrong)
                return None
        at = GROUP, self.kind, text(self.document["metadata"].get("namespace")), self.name
        self.mark = await session.current().owner_mark(at, self.reviewed.live)
        older = {**with_edits(older, self.reviewed.kept)}
        older["metadata"] = {
            **older["metadata"],
            "annotations": {
                **older["metadata"].get("annotations", {}),
                MADE_BY: self.mark,
                **await drift_annotations(at, self.reviewed),
                **self._deletion_annotations(),
            },
        }
        before = [await other.made for other in self._set.referenced_by(self)]
        after = await dependencies.created(self._opts)
        depends_on = [*after, *filter(None, before), *place.needs, *resolved.depends_on]
        options = self.child_options(depends_on, provider=target.provider or targets.provider(place, self.cluster))
        document = restore_outputs(older, resolved.unknown)
        made = _Object(self.pulumi_resource_name, document, options)
        kind = api_resource(self.kind, self.version)
        restored: Mapping[str, Any] = ADOPTED
        if not self.reviewed.adopted:
            restored = restoration(self.reviewed.restored, document)
        session.current().guard(made, kind, document["metadata"], self.connection, restored)
        return made

    def _deletion_annotations(self) -> dict[str, str]:
        """Return annotations that define what happens when the object is removed from the program."""
        if not self._opts.retain_on_delete:
            return {}
        return {ON_DELETE: "retain"}

    async def _namespace_problems(self, before: list[pulumi.Resource]) -> list[Problem]:
        """Return a problem if the namespace does not exist, unless a dependency of the object may create it."""
        namespace = self.document["metadata"].get("namespace")
        made = await dependencies.made_by([*await dependencies.explicit(self._opts), *before])
        if not isinstance(namespace, str) or made & {ANYTHING, "Namespace/", f"Namespace/{namespace}"}:
            return []
        if not await asyncio.to_thread(queries.lacks_namespace, self.connection, namespace):
            return []
        hint = "create it, name another one, or let the queue depend on it (depends_on)"
        return [Problem("namespace", f"namespace {namespace} does not exist", hint)]

    def _destination(self) -> Kubernetes | None:
        """Return the cluster: that of `target`, else of the provider in the options, else of the stack's configuration; None if
        the stack's target is Local.
        """
        if self._target is not None:
            return self._target
        if self._inherited is not None:
            return Kubernetes(provider=self._inherited)
        if pulumi.Config("trainer").get("target") == "local":
            return None
        return Kubernetes()

    def _refuse(self, wrong: list[Problem]) -> None:
        self._set.refuse(map(self._with_program_path, wrong))

    def _with_program_path(self, problem: Problem) -> Problem:
        """Return a problem with the path of the program's argument."""
        if self.above is not None:
            problem = replace(problem, where=self.above.argument(self.kind, self.resource_name, problem.where))
        return problem.below(self._where)

    def child_options(
        self, depends_on: list[pulumi.Resource], *, provider: pulumi.ProviderResource | None = None
    ) -> pulumi.ResourceOptions:
        """Return options for the component's children, which depend on the component's own dependencies as well."""
        after: Any = self._opts.depends_on
        if isinstance(after, pulumi.Resource):
            after = [after]
        elif not isinstance(after, (list, tuple)):
            after = []
        return pulumi.ResourceOptions(
            parent=self,
            provider=provider,
            depends_on=[*after, *depends_on],
            protect=self._opts.protect,
            retain_on_delete=self._opts.retain_on_delete,
        )

    def create_after_users(
        self, kind: str, make: Callable[[pulumi.Resource, list[pulumi.Resource]], pulumi.Resource]
    ) -> asyncio.Task[pulumi.Resource | None]:
        """Create a resource after the object, and after all objects of a kind that refer to it."""

        async def later() -> pulumi.Resource | None:
            made = await self.made
            users = [await other.made for other in self._referring(kind)]
            if made is None or self._set.wrong:
                return None
            return make(made, [user for user in users if user is not None])

        return session.current().spawn(later())

    def members_deleted_after(self, kind: str) -> list[QueueObject]:
        """Return the objects that the engine deletes after a resource of `create_after_users`: the objects of that kind, and all
        objects that this object refers to.
        """
        found = [*self._referring(kind)]
        needed: list[QueueObject] = [self]
        for each in needed:
            needed += [other for other in self._set.referenced_by(each) if other not in needed]
        return [*found, *needed[1:]]

    def deleted_after(self, kind: str) -> list[dict[str, str]]:
        """Return kind, version, namespace and name of `members_deleted_after`, without objects in an unknown namespace."""
        places = []
        for member in self.members_deleted_after(kind):
            namespace = member.document["metadata"].get("namespace", "")
            if isinstance(namespace, str):
                places.append((member.kind, member.version, namespace, member.name))
        return [dict(zip(("kind", "version", "namespace", "name"), place, strict=True)) for place in sorted(places)]

    def _referring(self, kind: str) -> Iterator[QueueObject]:
        """Yield the objects of a kind that refer to this one."""
        for other in self._set.members:
            if other.kind == kind and other.refers_to(self):
                yield other

    def refers_to(self, other: QueueObject) -> bool:
        """Return whether the object refers to another one of its cluster."""
        return self.cluster == other.cluster and (other.kind, other.name) in _referenced(self.document)

    async def resources(self) -> list[pulumi.Resource]:
        """Return the resources that a job in this queue depends on: the object, and the guard of its queue."""
        found = [await self.made]
        guards = [getattr(other, "guard", None) for other in self._set.referenced_by(self)]
        for guard in guards:
            if guard:
                found.append(await guard)
        return [*filter(None, found)]


@dataclass
class _Set:
    """All of Kueue's objects of a program.

    Attributes:
        wrong: Whether any object has a problem, so that none is created.
    """

    members: list[QueueObject] = field(default_factory=list)
    wrong: bool = False
    checked: int = 0
    served: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    taken_over: list[str] = field(default_factory=list)

    def refuse(self, wrong: Iterable[Problem]) -> None:
        """Report problems, and create no further objects."""
        self.wrong = True
        session.current().add_problems(wrong)

    async def set_version(self, member: QueueObject) -> None:
        """Set the API version of a member to the one that its cluster serves."""
        if member.cluster not in self.served:
            self.served[member.cluster] = asyncio.ensure_future(self._review_members(member))
            if pulumi.runtime.is_dry_run():
                session.current().spawn(self._warn_of_removed_queues(member))
        member.version = _version(member.kind, await self.served[member.cluster])

    async def _review_members(self, first: QueueObject) -> Any:
        """Return the API versions that the cluster serves. First report the problems of its members and removed objects."""
        served = await asyncio.to_thread(queries.queue_api_versions, first.connection)
        members = self._members_of(first.cluster)
        for member in members:
            if member.settled is not None:
                await member.settled
        for member in members:
            version = _version(member.kind, served)
            missing_fields = at_version(member.document, version)[1]
            if missing_fields:
                member._refuse(member._with_argument_paths(missing_fields))
                continue
            if member.kind != NAMESPACED or member.settled is not None:
                name_problems = await self.name_conflicts(member, first.connection, served)
                if name_problems:
                    member._refuse(name_problems)
        self.show_taken_over()
        wrong = await self._undeletable_queues(first, _version("ClusterQueue", served))
        wrong += await self._transferred_objects(first, served)
        if wrong:
            self.refuse(wrong)
        return served

    def _members_of(self, cluster: str) -> list[QueueObject]:
        """Return the members of a cluster."""
        return [member for member in self.members if member.cluster == cluster]

    async def _undeletable_queues(self, first: QueueObject, version: str) -> list[Problem]:
        """Return a problem for each removed queue that cannot be deleted; an update would delete it last."""
        named = {member.name for member in self._members_of(first.cluster) if member.kind == "ClusterQueue"}
        owner = await session.current().object_owner()
        work = await asyncio.to_thread(queues_with_work, first.connection, version, owner, named)
        if not work:
            return []
        own = jobs_of(await session.current().stack_resources())
        return [*refusals_of_queues(work, own, session.current().queue_of)]

    async def _transferred_objects(self, first: QueueObject, served: Any) -> list[Problem]:
        """Return a problem for each removed object that belongs to another stack now: an update would delete it."""
        recorded, named = await session.current().stack_resources(), self._places(first)
        owner = await session.current().object_owner()
        kinds = {member.kind for member in self.members} | recorded_kinds(recorded)
        versions = {kind: _version(kind, served) for kind in kinds}
        return await asyncio.to_thread(
            lambda: [*transferred_objects(first.connection, versions, recorded, owner, named)]
        )

    def _places(self, first: QueueObject) -> set[Place]:
        """Return kind, namespace and name of the members of a cluster."""
        places = set()
        for member in self._members_of(first.cluster):
            metadata = member.document["metadata"]
            places.add((member.kind, metadata.get("namespace", ""), str(metadata["name"])))
        return places

    async def _warn_of_removed_queues(self, first: QueueObject) -> None:
        """Warn of queues of this stack that were removed from the program, once all members are known."""
        await asyncio.gather(*(member.made for member in self.members))
        if self.wrong:
            return
        named = self._places(first)
        version = _version("ClusterQueue", await self.served[first.cluster])
        owner = await session.current().object_owner()
        warnings = await asyncio.to_thread(lambda: [*removal_warnings(first.connection, version, owner, named)])
        for warning in filter(session.current().is_unreported, warnings):
            messages.warn(warning)

    async def name_conflicts(self, member: QueueObject, connection: Any, served: Any) -> list[Problem]:
        """Return why the object cannot be created or updated under its name.

        Either another owner's object has the name, which pulumi-kubernetes would overwrite silently, or this stack's object has
        other immutable fields.
        """
        version = _version(member.kind, served)
        live = await asyncio.to_thread(queries.list_queue_objects, connection, member.kind, version)
        place = member.document["metadata"].get("namespace", "")
        owner = await session.current().object_owner()
        for each in live:
            found = each["metadata"]
            if (found["name"], found.get("namespace", "")) != (member.name, place) or "deletionTimestamp" in found:
                continue
            of = api_resource(member.kind, version)
            if not await asyncio.to_thread(owner.owns, connection, of, found):
                if not member._args.adopt or mark_of(found):
                    return [Problem("name", *owner.foreign_object(of, found, may_adopt=True))]
                return self._adopt(member, each, of)
            member.reviewed = Reviewed(found)
            wrong = [*immutable_changes(member.document, each, served or VERSIONS)]
            return member._with_argument_paths(wrong or await self._review_edits(member, each, connection, version))
        if member._args.adopt == EXISTING and served and (GROUP, member.kind, place, member.name) not in owner.recorded:
            return [Problem("adopt", f"the cluster has no {member.kind} {member.name} that can be listed", _MISSING)]
        return []

    def _adopt(self, member: QueueObject, live: Mapping[str, Any], kind: Kind) -> list[Problem]:
        """Take over an object that belongs to no stack; return a problem if it is not what the program describes."""
        stored = review({**with_canonical_quantities(member.document)}).stored or member.document
        wanted, _ = at_version(stored, kind.api_version.rpartition("/")[2])
        metadata = live["metadata"]
        where = kind.where(text(metadata.get("namespace")), metadata["name"])
        found = differences(with_canonical_quantities({**live}), wanted)
        if found:
            hint = "write the values of the cluster into the program, or change the object first"
            return [
                Problem("adopt", f"{where} is not taken over, as the program would change it: {several(found)}", hint)
            ]
        member.reviewed = Reviewed(metadata, adopted=True)
        self.taken_over.append(where)
        return []

    def show_taken_over(self) -> None:
        """Say which objects of the cluster are taken over."""
        if self.taken_over:
            messages.info(f"These objects exist and are taken over as they are: {'; '.join(self.taken_over)}")
            self.taken_over.clear()

    async def _review_edits(
        self, member: QueueObject, live: Mapping[str, Any], connection: Any, version: str
    ) -> list[Problem]:
        """Note what was changed in an object by hand; return why it is refused."""
        wanted, _ = at_version(with_canonical_quantities(member.document), version)
        kind = api_resource(member.kind, version)
        member.reviewed, wrong = await review_edits(
            kind,
            with_canonical_quantities({**live}),
            wanted,
            member.drift,
            lambda: affected_jobs(connection, live, member.kind, version),
        )
        return wrong

    def check(self) -> None:
        """Report problems of several objects: equal names, and cohorts in a circle."""
        if self.checked == len(self.members):
            return
        self.checked = len(self.members)
        for cluster in dict.fromkeys(member.cluster for member in self.members):
            members = self._members_of(cluster)
            documents = [member.document for member in members]
            for at, problem in conflicts(documents):
                members[at]._refuse(members[at]._with_argument_paths([problem]))

    def referenced_by(self, member: QueueObject) -> Iterator[QueueObject]:
        """Yield the members that a member refers to."""
        asked = _referenced(member.document)
        for other in self.members:
            if (other.kind, other.name) in asked and other.cluster == member.cluster:
                yield other


_sets: WeakKeyDictionary[asyncio.AbstractEventLoop, _Set] = WeakKeyDictionary()


def current() -> _Set:
    """Return Kueue's objects of the running program."""
    return _sets.setdefault(asyncio.get_event_loop(), _Set())


def _composing(opts: pulumi.ResourceOptions | None) -> Composed | None:
    """Return the component of this package that creates the resource with these options, if any."""
    if opts is not None and isinstance(opts.parent, Composed) and opts.parent.making:
        return opts.parent
    return None


def _referenced(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return kind and name of the objects that an object refers to."""
    return {(kind, name) for kind, name, _ in references(document)}


def _unknown_if_output(path: str, leaf: Any) -> Any:
    if isinstance(leaf, pulumi.Output):
        return Unknown(path)
    return leaf


def _version(kind: str, served: Any) -> str:
    """Return the version of a kind to use."""
    if served is None:
        return NEWEST
    found = served_version(kind, served)
    if found is None:
        warning = Problem("", f"the cluster has no {KINDS[kind]} of {GROUP}", "install Kueue 0.15 or newer first")
        if session.current().is_unreported(warning):
            messages.warn(warning)
    return found or NEWEST


class _Object(PluginResource):
    """An object of Kueue. Objects of another API version are the same resource."""

    def __init__(self, name: str, document: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        version, kind = document["apiVersion"], document["kind"]
        aliases = []
        for each in VERSIONS:
            other = f"{GROUP}/{each}"
            if other != version:
                aliases.append(pulumi.Alias(type_=f"kubernetes:{other}:{kind}"))
        fixed = FIXED.get(kind)
        own = pulumi.ResourceOptions(
            aliases=aliases,
            custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_WITHIN),
            replace_on_changes=fixed,
            delete_before_replace=bool(fixed) or None,
        )
        super().__init__(name, document, pulumi.ResourceOptions.merge(own, opts))
