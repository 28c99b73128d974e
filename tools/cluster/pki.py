"""Keys and certificates of a cluster: its own authority, one certificate for all its servers, and any for clients.

Called by cluster.py, and by tests for users with certificates.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = timedelta(days=3650)
NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def make(folder: Path, addresses: Iterable[str]) -> None:
    """ca.crt and ca.key; tls.crt and tls.key for servers at these addresses; sa.key and sa.pub for service accounts."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pulumi-trainer-test-cluster")])
    builder = _builder(name, name, key.public_key(), YEARS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / "ca.key", _pem(key))
    names: list[x509.GeneralName] = [x509.DNSName(n) for n in NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
    certificate, private = issue(folder, "127.0.0.1", names=names)
    _write(folder / "tls.crt", certificate)
    _write(folder / "tls.key", private)
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(folder / "sa.key", _pem(accounts))
    _write(folder / "sa.pub", _public(accounts))


def issue(
    folder: Path,
    user: str,
    groups: Sequence[str] = (),
    *,
    names: Sequence[x509.GeneralName] = (),
    life: timedelta = YEARS,
) -> tuple[bytes, bytes]:
    """A certificate and its key in PEM, signed by the authority in the folder.

    user, groups: whom the API server sees in a client that has it.
    names: of a server.
    life: from now on; it may lie in the past.
    """
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    builder = _builder(x509.Name(subject), authority.subject, key.public_key(), life)
    builder = builder.add_extension(_usage(authority=False), critical=True)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    signed = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(signed, critical=False)  # Python 3.13 refuses a certificate without it
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    begin = min(now, now + life) - timedelta(minutes=5)
    return x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, now + life)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=not authority, data_encipherment=False,
        key_agreement=False, key_cert_sign=authority, crl_sign=authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _public(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
