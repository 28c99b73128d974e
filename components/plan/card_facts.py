"""What the model card of a tool's job tells of it, as a file that travels with the job's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.args import sources
from pulumi_trainer.args.fine_tuning import ToolTrainer, table
from pulumi_trainer.plan.run_inputs import named_release
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.kubernetes.values.accessors import section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod.code import CARD_FILE


def with_card_facts(written: WrittenJob, args: TrainJobArgs, job: str, runtime: Mapping[str, Any]) -> WrittenJob:
    """Return a job whose code has the facts of its model card, if its program is that of a tool."""
    if not isinstance(args.trainer, ToolTrainer):
        return written
    code, uris = written.fields["code"], dict[str, str]()
    for kind, source in sources.parts(args.initializer).items():
        uri = getattr(source, "storage_uri", None)
        if isinstance(uri, str):
            uris[kind] = uri
    job_rows = {"Runtime": named_release(runtime), "Job": job, "Run": args.run_key}
    facts = card_facts(args.trainer, written.func_args.visible, uris, job_rows)
    modules = {**(code.get("modules") or {}), CARD_FILE: json.dumps(facts, sort_keys=True)}
    return replace(written, fields={**written.fields, "code": {**code, "modules": modules}})


def card_facts(
    trainer: ToolTrainer, arguments: Any, uris: Mapping[str, str], job_rows: Mapping[str, str]
) -> dict[str, Any]:
    """Return the facts as JSON. Values that are secret, or not known yet, are not in them.

    Args:
        arguments: Its arguments, with `Unknown` in the place of secret values.
    """
    fields = _without_unknown(section(arguments, "config"))
    model = uris.get("model") or fields.get(trainer.model)
    dataset = uris.get("dataset") or fields.get(trainer.dataset)
    return {
        "title": trainer.title,
        "package": trainer.tool,
        "tags": [trainer.tool, trainer.method_name()],
        "model": text(model),
        "dataset": text(dataset),
        "fields": fields,
        "rows": {
            "Tool": f"{trainer.title} {table(trainer.tool)['release']}",
            "Method": trainer.method_name(),
            "Base model": model,
            "Dataset": dataset,
            **job_rows,
        },
    }


def _without_unknown(value: Any) -> Any:
    """Return a value without its `Unknown` parts, which may be secret."""
    if isinstance(value, Mapping):
        return {name: _without_unknown(each) for name, each in value.items() if not isinstance(each, Unknown)}
    if isinstance(value, list):
        return [_without_unknown(each) for each in value if not isinstance(each, Unknown)]
    return value
