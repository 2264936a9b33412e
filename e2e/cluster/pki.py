"""Certificates, keys and tokens of one cluster; made anew for each cluster and valid for a year."""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster.paths import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

VALID_DAYS = 365
ADMIN = "admin"

# Who may call the API server, with the groups that its bootstrap roles are bound to.
USERS: dict[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("cluster-admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-proxy": ("system:kube-proxy", ()),
    "coredns": ("reasoningpool:coredns", ("system:masters",)),
    "kwok": ("reasoningpool:kwok", ("system:masters",)),
}


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority whose key never leaves this process."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str) -> Authority:
        """A new self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, (), key.public_key())
            .issuer_name(_subject(name, ()))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    def write(self, folder: Path, name: str, *, with_key: bool = False) -> None:
        """Write `<name>.crt`, and `<name>.key` where a component signs with it."""
        write_atomically(folder / f"{name}.crt", _pem(self.certificate), mode=0o644)
        if with_key:
            write_atomically(folder / f"{name}.key", _key_pem(self.key))

    def issue(
        self, folder: Path, name: str, common_name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> None:
        """Write `<name>.crt` and `<name>.key`: a client certificate or, with `hosts`, a serving one."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(common_name, groups, key.public_key())
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        write_atomically(folder / f"{name}.crt", _pem(certificate), mode=0o644)
        write_atomically(folder / f"{name}.key", _key_pem(key))


def create(folder: Path, *, hosts: Sequence[str], node: str | None = None, node_hosts: Sequence[str] = ()) -> None:
    """Write everything that the components authenticate with into `folder`.

    `hosts` are the names and addresses of the API server, `node_hosts` those of the kubelet of `node`.
    """
    authority = Authority.create("reasoningpool-cluster")
    authority.write(folder, "ca", with_key=True)
    authority.issue(folder, "apiserver", "kube-apiserver", hosts=hosts)
    authority.issue(folder, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=["system:masters"])
    front_proxy = Authority.create("reasoningpool-front-proxy")
    front_proxy.write(folder, "front-proxy-ca")
    front_proxy.issue(folder, "front-proxy-client", "front-proxy-client")
    users = dict(USERS)
    if node:
        authority.issue(folder, "kubelet", f"system:node:{node}", hosts=node_hosts)
        users["kubelet"] = (f"system:node:{node}", ("system:nodes",))
    signing_key = ec.generate_private_key(ec.SECP256R1())
    write_atomically(folder / "service-account.key", _key_pem(signing_key))
    write_atomically(
        folder / "service-account.pub",
        signing_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
    tokens = {name: secrets.token_urlsafe(24) for name in users}
    lines = [f'{tokens[name]},{user},{name},"{",".join(groups)}"' for name, (user, groups) in users.items()]
    write_atomically(folder / "tokens.csv", "\n".join(lines) + "\n")
    for name, token in tokens.items():
        write_atomically(folder / f"{name}.token", token)


def _subject(common_name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(common_name: str, groups: Sequence[str], key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(common_name, groups))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))  # also after the clock was set back
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
