"""Generates the keys in a job's Secrets when the job is created, in place of the placeholders of trainer/generated.

The formats are those of Trainer's controller, so the same images work:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/mpi/mpi.go (buildSSHAuthSecret) and
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/flux/flux.go (buildCurveSecret)
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from pulumi_trainer.provider.trainer.generated import CURVE_CERT, GENERATED_TOKEN, SSH_PRIVATE_KEY, SSH_PUBLIC_KEY

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def generate_values(data: Mapping[str, str]) -> dict[str, bytes]:
    """Return new values for the placeholders in the data of a Secret; other keys are left out.

    The private and the public SSH key are a pair.
    """
    made: dict[str, bytes] = {}
    if {SSH_PRIVATE_KEY, SSH_PUBLIC_KEY} & set(data.values()):
        made[SSH_PRIVATE_KEY], made[SSH_PUBLIC_KEY] = _ssh_keys()
    if CURVE_CERT in data.values():
        made[CURVE_CERT] = _curve_certificate()
    if GENERATED_TOKEN in data.values():
        made[GENERATED_TOKEN] = secrets.token_hex(32).encode()
    return {key: made[value] for key, value in data.items() if value in made}


def keys_to_generate(data: Mapping[str, str]) -> list[str]:
    """Return the keys of a Secret whose values are placeholders."""
    return [
        key for key, value in data.items() if value in (SSH_PRIVATE_KEY, SSH_PUBLIC_KEY, CURVE_CERT, GENERATED_TOKEN)
    ]


def _ssh_keys() -> tuple[bytes, bytes]:
    """Return an ECDSA key pair of curve P-521: the private key as SEC 1 in PEM, the public key as a line of authorized_keys."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.TraditionalOpenSSL, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return private, public + b"\n"


def _curve_certificate() -> bytes:
    """Return a ZeroMQ CURVE certificate with its secret key, in the format of `flux keygen`."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    public, secret = _z85(key.public_key().public_bytes_raw()), _z85(key.private_bytes_raw())
    lines = ["#  ZeroMQ CURVE certificate", "", "metadata", '    name = "pulumi-trainer"', "curve"]
    lines += [f'    public-key = "{public}"', f'    secret-key = "{secret}"', ""]
    return "\n".join(lines).encode()


def _z85(data: bytes) -> str:
    """Return data in ZeroMQ's base 85: five characters for four bytes (https://rfc.zeromq.org/spec/32/)."""
    encoded = ""
    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "big")
        encoded += "".join(_Z85[word // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return encoded
