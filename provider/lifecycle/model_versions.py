"""Checks, compares, registers, reads and removes the versions of a model in a registry: outputs of runs that have succeeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi_trainer.provider.jobs.lineage import find_run
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.lifecycle.connection import Inputs
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource, Stored
from pulumi_trainer.provider.lifecycle.target import Connect
from pulumi_trainer.provider.registries.connection import open_registry
from pulumi_trainer.provider.registries.registry import Registration, address_problems, aliases_text, registry_name


@dataclass(frozen=True, kw_only=True)
class _Version(Stored):
    """What inputs and outputs of a model version have in common.

    Attributes:
        registry: Kind, uri and perhaps a secret token of the registry.
        run: Id of the run whose output is registered; unknown until it has succeeded; empty if it has not.
        version: Name that the program gives the version; empty: the registry or the run names it.
        retain: Whether versions stay in the registry when the resource is deleted.
    """

    registry: Mapping[str, Any]
    model: str
    run: Any
    version: str = ""
    aliases: Sequence[str] = field(default_factory=list)
    retain: bool = True

    @property
    def place(self) -> list[Any]:
        """Return what another model differs in."""
        return [only(self.registry, ("kind", "uri")), self.model]

    @property
    def where(self) -> str:
        """Return the model and its registry, for messages."""
        return f"model {self.model} in {registry_name(self.registry['kind'], str(self.registry['uri']))}"


@dataclass(frozen=True, kw_only=True)
class ModelVersionInputs(_Version, Inputs):
    """Inputs of a model version. namespace, job: The job whose output is registered."""

    namespace: Any
    job: Any


@dataclass(frozen=True, kw_only=True)
class ModelVersionOutputs(_Version):
    """Outputs of a model version.

    Attributes:
        registered: The newest version that is registered; empty if none is.
        url: Where the registry shows it.
        digest: Digest of its files.
        versions: All versions that the resource has registered, the newest last.
    """

    registered: str = ""
    url: str = ""
    digest: str = ""
    versions: Sequence[str] = field(default_factory=list)

    def to_state(self) -> dict[str, Any]:
        """Return the fields as the state has them, also those that programs read and that are empty."""
        return {**super().to_state(), "registered": self.registered, "url": self.url, "digest": self.digest}


class ModelVersions(Resource[ModelVersionInputs, ModelVersionOutputs]):
    inputs, outputs = ModelVersionInputs, ModelVersionOutputs

    def check(
        self,
        olds: ModelVersionInputs | None,
        news: ModelVersionInputs,
        connect: Connect,  # noqa: ARG002
    ) -> Checked[ModelVersionInputs]:
        """Return the inputs to store. A run that has not succeeded leaves the version of the one before it."""
        if not isinstance(news.target, Unknown):
            news = replace(news, target=news.location)
        failures = _address_failures(news.registry)
        if failures:
            return Checked(news, failures=failures)
        if olds is not None and olds.place != news.place:
            olds = None
        if olds is not None and news.run == "":
            news = replace(news, run=olds.run)
        if news.run == "" or (olds is not None and olds.run == news.run and olds.version == news.version):
            return Checked(news)
        if olds is not None and olds.run:
            failure = _reuse_failure(olds, news)
            if failure:
                return Checked(news, failures=(failure,))
        return Checked(news, notes=(_registration_note(news),))

    def diff(self, olds: ModelVersionOutputs, news: ModelVersionInputs) -> Diff:
        if any_unknown(news.registry.values()):
            return Diff(None)
        if olds.place != news.place:
            return Diff(True, ("registry",) if olds.registry != news.registry else ("model",))
        return Diff(_settings(olds) != _settings(news))

    def create(self, inputs: ModelVersionInputs, connect: Connect) -> tuple[str, ModelVersionOutputs]:
        """Register the output of the run, unless that has not succeeded. Safe to repeat after a crash."""
        return inputs.model, _register(ModelVersionOutputs.of(inputs), inputs, connect)

    def update(self, outputs: ModelVersionOutputs, inputs: ModelVersionInputs, connect: Connect) -> ModelVersionOutputs:
        """Register the output of another run, or change the aliases."""
        known = ModelVersionOutputs.of(inputs, **_results(outputs))
        if inputs.run != outputs.run:
            made = _register(known, inputs, connect)
            dropped = [alias for alias in outputs.aliases if alias not in inputs.aliases]
            if dropped and outputs.registered:
                open_registry(inputs.registry).set_aliases(inputs.model, outputs.registered, (), dropped)
            return made
        if [*inputs.aliases] != [*outputs.aliases] and outputs.registered:
            registry = open_registry(inputs.registry)
            registry.set_aliases(inputs.model, outputs.registered, inputs.aliases, outputs.aliases)
        return known

    def read(
        self,
        outputs: ModelVersionOutputs,
        connect: Connect,  # noqa: ARG002
    ) -> tuple[ModelVersionOutputs | None, list[str]]:
        """Return the outputs, without the newest version if the registry does not have it any more."""
        if not outputs.registered:
            return outputs, []
        try:
            if open_registry(outputs.registry).has(outputs.model, outputs.registered):
                return outputs, []
        except TargetFault as fault:
            return outputs, [f"{outputs.where} is unchanged in the state of this stack: {fault}"]
        why = f"{outputs.where}: somebody has removed version {outputs.registered}, which `pulumi up` registers again"
        versions = [each for each in outputs.versions if each != outputs.registered]
        return replace(outputs, run="", registered="", url="", digest="", versions=versions), [why]

    def delete(self, outputs: ModelVersionOutputs, connect: Connect) -> list[str]:  # noqa: ARG002
        """Remove all versions that the resource has registered, unless they are retained."""
        if not outputs.versions:
            return []
        if outputs.retain:
            return [f"{outputs.where} keeps {_versions(outputs.versions)}, as retain=False is not set"]
        registry = open_registry(outputs.registry)
        for version in outputs.versions:
            registry.remove(outputs.model, version)
        return []


def _versions(versions: Sequence[str]) -> str:
    noun = "version" if len(versions) == 1 else "versions"
    return f"{noun} {', '.join(versions)}"


def _settings(known: _Version) -> list[Any]:
    return [dict(known.registry), known.run, known.version, [*known.aliases], known.retain]


def _results(outputs: ModelVersionOutputs) -> dict[str, Any]:
    names = ("registered", "url", "digest", "versions")
    return {name: getattr(outputs, name) for name in names}


def _address_failures(registry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is wrong with the address of a registry that the program has as an Output, once its value is known."""
    uri = registry["uri"]
    if isinstance(uri, Unknown):
        return ()
    found = address_problems(registry["kind"], str(uri), has_token=bool(registry.get("token")))
    return tuple(str(replace(each, where=f"registry.{each.where}")) for each in found)


def _reuse_failure(olds: ModelVersionInputs, news: ModelVersionInputs) -> str:
    """Return why a version cannot be registered: it is that of another run, or the run has one; empty if it can."""
    where = f"{news.where}: run {olds.run} of {news.job} is registered as version"
    if olds.run == news.run:
        why = f"{where} {olds.version!r}, and the same output is not registered twice"
        return str(Problem("version", why, f"set version={olds.version!r}, or run the job again"))
    if news.version and olds.version == news.version:
        return str(Problem("version", f"{where} {olds.version!r}", "another run needs another version="))
    return ""


def _registration_note(news: ModelVersionInputs) -> str:
    """Return what is registered, under which name, and when."""
    run, when = f"run {news.run}", "now"
    if isinstance(news.run, Unknown):
        run, when = "the run", "once the run has succeeded"
    named = "its next version"
    if news.version:
        named = f"version {news.version}"
    registered = f"as {named}{aliases_text(news.aliases)}, {when}"
    return f"{news.where}: the output of {run} of job {news.namespace}/{news.job} is registered {registered}"


_AGAIN = "the output of the job is kept: `pulumi up` registers it once the registry takes it"


def _register(known: ModelVersionOutputs, inputs: ModelVersionInputs, connect: Connect) -> ModelVersionOutputs:
    """Return the outputs with the version of the run of the inputs; as they are if it has not succeeded."""
    if not inputs.run:
        return known
    given = _registration(inputs, connect)
    try:
        made = open_registry(inputs.registry).register(given)
    except TargetFault as fault:
        raise TargetFault(*(replace(each, hint=each.hint or _AGAIN) for each in fault.problems)) from None
    versions = [*(each for each in known.versions if each != made.version), made.version]
    return replace(
        known, registered=made.version, url=made.url, digest=given.identity["trainer.digest"], versions=versions
    )


def _registration(inputs: ModelVersionInputs, connect: Connect) -> Registration:
    """Return what is known of a run and its output."""
    jobs, place = connect(inputs.target).jobs, f"{inputs.namespace}/{inputs.job}"
    status = jobs.status(inputs.namespace, inputs.job)
    if status is None:
        why = f"job {place} is gone, so the output of run {inputs.run} cannot be registered"
        raise TargetFault(Problem(inputs.where, why, "`pulumi refresh` and `pulumi up` run the job again"))
    if status.identity.id != inputs.run or status.phase != Phase.SUCCEEDED:
        newest = f"{status.identity.id}, which is {status.phase}"
        why = f"run {inputs.run} of {place} cannot be registered: the newest run is {newest}"
        raise TargetFault(Problem(inputs.where, why, "`pulumi up` registers the newest run once it has succeeded"))
    if not status.output:
        raise TargetFault(Problem(inputs.where, f"{place} has no output volume", "set output=True on the TrainJob"))
    if status.cluster:
        why = f"the output of {place} is in the worker cluster {status.cluster}, where it cannot be read"
        raise TargetFault(Problem(inputs.where, why, "register jobs of the cluster of their target"))
    run = find_run(jobs.runs(inputs.namespace, inputs.job), inputs.run, "run")
    content = jobs.output_content(inputs.namespace, inputs.job, status.output)
    identity = {
        "trainer.model": inputs.model,
        "trainer.stack": inputs.program,
        "trainer.job": place,
        "trainer.run": inputs.run,
        "trainer.digest": f"sha256:{content.sha256}",
    }
    folder, source = "", status.output
    if inputs.is_local:
        folder, source = source, f"file://{source}"
    facts = {"trainer.output": source, "trainer.files": str(content.files), "trainer.bytes": str(content.size)}
    if run.seconds:
        facts["trainer.seconds"] = f"{run.seconds:.1f}"
    return Registration(
        model=inputs.model,
        version=inputs.version,
        aliases=inputs.aliases,
        source=source,
        folder=folder,
        project=inputs.program.partition("/")[0],
        namespace=inputs.namespace,
        job=inputs.job,
        run=inputs.run,
        identity=identity,
        facts=facts,
        inputs=run.inputs,
        metrics={name: metric.last for name, metric in run.metrics.items() if metric.last},
        started=run.started,
        finished=run.finished,
    )
