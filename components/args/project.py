"""A project whose files travel with a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pathspec import GitIgnoreSpec
from pulumi_trainer.args.arguments import Args, as_sequence, positional, type_problems
from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem


class Source(Args):
    """The files of a project, which travel with a job; their copy is the current folder of its code on every node.

    Files that a `.gitignore` of the project names stay behind, and so do virtual environments, caches and files that
    contain secrets (`.env`, `Pulumi.*.yaml`, private keys).

    Args:
        path: Folder of the project; a relative path is relative to the current folder of the program. With `git`, a folder of the
            repository, "." for all of it.
        git: Address of a git repository (https://, ssh://, user@host:path, file:///) without credentials, which git takes from
            its credential helper. Default: none, the files are those of `path`.
        revision: Tag, branch or commit of `git`. The file `sources.lock` keeps the commits of tags and branches.
        include: Patterns as in `.gitignore`: only files that match one travel. Default: all.
        exclude: Patterns as in `.gitignore` of further files that stay behind. Default: none.
        storage: Place for an archive that is larger than a ConfigMap, such as s3://bucket/prefix. `pulumi up` writes it there
            with the credentials of this machine, and each node fetches it with those of its environment (`AWS_ACCESS_KEY_ID`,
            `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, or the role of a service account on
            EKS). Default: none.
    """

    path: str | Path = positional(kw_only=False)
    git: str | None = None
    revision: str | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    storage: str | None = None

    elsewhere: ClassVar[Mapping[str, str]] = {"storage_uri": "DataSource(storage_uri=...)"}

    def check(self) -> list[Problem]:
        found = [*super().check(), *type_problems(self)]
        for field in ("include", "exclude"):
            for i, pattern in enumerate(as_sequence(self.__dict__.get(field))):
                if not isinstance(pattern, str):
                    found.append(Problem(f"{field}[{i}]", f"must be a string, not {type(pattern).__name__}"))
                elif not is_pattern(pattern):
                    found.append(
                        Problem(f"{field}[{i}]", f"not a valid pattern: {pattern!r}", "write it as in .gitignore")
                    )
        if (self.git is None) != (self.revision is None):
            why = "requires git"
            if self.revision is None:
                why = "is required with git"
            found.append(Problem("revision", why, 'give both: git="https://...", revision="v1.2"'))
        if isinstance(self.storage, str):
            found += [problem.below("storage") for problem in s3_problems(self.storage)]
        return found


def is_pattern(text: str) -> bool:
    """Return whether a line is valid in a `.gitignore` file."""
    try:
        GitIgnoreSpec.from_lines([text])
    except (ValueError, re.error):
        return False
    return True


def s3_problems(address: str) -> list[Problem]:
    """Return a problem if an address is not `s3://BUCKET/PREFIX`."""
    if _S3.fullmatch(address) and not {".", ".."} & {*address.split("/")}:
        return []
    hint = "expected: s3://BUCKET/PREFIX with letters, digits and . _ = + - only, and without credentials or parameters"
    bucket = _BUCKET.match(address)
    if bucket is not None and not 3 <= len(bucket[1]) <= 63:
        hint = f"the name of a bucket has 3 to 63 characters, and {bucket[1]} has {len(bucket[1])}"
    return [Problem("", f"not a valid S3 location: {hide_credentials(address)!r}", hint)]


_S3 = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9](/[A-Za-z0-9._=+-]+)*/?")
_BUCKET = re.compile(r"s3://([A-Za-z0-9._-]+)(?:/|$)")
