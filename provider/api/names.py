"""Kubernetes' rules for names: each function says what is wrong with a name, in no words if nothing is.

Called by admission and by the pipeline's validation. Rules and words are Kubernetes' own:
https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/validation/validation.go
"""

from __future__ import annotations

import re

_LABEL_1123 = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_1123 = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def dns_1035_label(name: str) -> list[str]:
    """Such as a Service or a Pod's host name: at most 63 characters, a letter first."""
    why = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
        "alphabetic character, and end with an alphanumeric character (e.g. 'my-name' or 'abc-123'"
    )
    return _checked(name, 63, _LABEL_1035, why)


def dns_1123_subdomain(name: str) -> list[str]:
    """Such as most objects' names: at most 253 characters, labels joined by dots."""
    why = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character (e.g. 'example.com'"
    )
    return _checked(name, 253, _SUBDOMAIN_1123, why)


def label_value(value: str) -> list[str]:
    """The value of a label: at most 63 characters; it may be empty."""
    why = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'MyValue' or 'my_value' or '12345'"
    )
    return _checked(value, 63, _LABEL_VALUE, why)


def domain_prefixed_path(path: str) -> list[str]:
    """Such as managedBy and the manager of a patch: `acme.io/foo`."""
    host, _, rest = path.partition("/")
    if not host or not rest:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    found = dns_1123_subdomain(host)
    if not re.fullmatch(_HTTP_PATH, rest):
        found.append(f"Invalid path (regex used for validation is '{_HTTP_PATH}')")
    return found


def _checked(name: str, longest: int, pattern: str, why: str) -> list[str]:
    found = [f"must be no more than {longest} characters"] if len(name) > longest else []
    if len(name) > 2 * longest or not re.fullmatch(pattern, name):
        found.append(f"{why}, regex used for validation is '{pattern}')")
    return found
