"""Keys in the place of placeholders: the formats that OpenSSH, Go and ZeroMQ read."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from plugin_support import job, rendered, runtime, train_job
from pulumi_trainer.provider.targets.generated_secrets import generate_values
from pulumi_trainer.provider.trainer.generated import CURVE_CERT, SSH_PRIVATE_KEY, SSH_PUBLIC_KEY

SSH = {"ssh-privatekey": SSH_PRIVATE_KEY, "ssh-publickey": SSH_PUBLIC_KEY}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(text: str) -> bytes:
    words = [text[at : at + 5] for at in range(0, len(text), 5)]
    numbers = [sum(DIGITS.index(c) * 85 ** (4 - i) for i, c in enumerate(word)) for word in words]
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def test_ssh_keys_belong_together() -> None:
    made = generate_values(SSH)
    assert list(made) == list(SSH)
    private, public = made.values()
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert private.endswith(b"-----END EC PRIVATE KEY-----\n")
    key = load_pem_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp521r1"
    kind, text, end = public.partition(b"\n")[0].split(b" ")[0], public.split(b" ")[1].rstrip(b"\n"), public[-1:]
    assert (kind, end, public.count(b"\n"), public.count(b" ")) == (b"ecdsa-sha2-nistp521", b"\n", 1, 1)
    numbers = key.public_key().public_numbers()
    point = b"\x04" + numbers.x.to_bytes(66, "big") + numbers.y.to_bytes(66, "big")
    assert base64.b64decode(text).endswith(point)


def test_openssh_reads_the_key(tmp_path: Path) -> None:
    made = generate_values(SSH)
    key = tmp_path / "id_rsa"
    key.write_bytes(made["ssh-privatekey"])
    key.chmod(0o600)
    try:
        shown = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True, check=True).stdout
    except FileNotFoundError:  # a machine without OpenSSH: the test above has to do
        return
    assert shown.split()[:2] == made["ssh-publickey"].split()


def test_curve_certificate() -> None:
    (text,) = generate_values({"curve.cert": CURVE_CERT}).values()
    comment, blank, metadata, name, curve, public, secret, end = text.decode().split("\n")
    assert comment.startswith("#")
    assert (blank, metadata, curve, end) == ("", "metadata", "curve", "")
    assert name == '    name = "pulumi-trainer"'
    keys = [line.partition('"')[2].removesuffix('"') for line in (public, secret)]
    assert [line.split("=")[0] for line in (public, secret)] == ["    public-key ", "    secret-key "]
    assert [len(key) for key in keys] == [40, 40]
    private = X25519PrivateKey.from_private_bytes(z85(keys[1]))
    assert private.public_key().public_bytes_raw() == z85(keys[0])


def test_each_call_makes_others() -> None:
    assert generate_values(SSH) != generate_values(SSH)
    assert generate_values({"curve.cert": CURVE_CERT}) != generate_values({"curve.cert": CURVE_CERT})


def test_other_values_are_left_out() -> None:
    assert generate_values({"a": "Yg=="}) == {}
    assert list(generate_values({"a": "Yg==", "mine": SSH_PUBLIC_KEY})) == ["mine"]


@pytest.mark.parametrize("name", ["mpi", "flux"])
def test_all_that_plugins_leave_open_is_made(name: str) -> None:
    objects = rendered(runtime({name: {}}, job("launcher"), job("node", "")), train_job({"numNodes": 1}))
    (secret,) = (o for o in objects.values() if o["kind"] == "Secret")
    assert generate_values(secret["data"]).keys() == secret["data"].keys()
    assert rendered(runtime({name: {}}, job("launcher"), job("node", "")), train_job({"numNodes": 1})) == objects
