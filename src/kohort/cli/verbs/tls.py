"""`kohort tls make DIR`: a certificate authority and two certificates, for trials and tests of TLS.

Laws: only their owner may read files with private keys. Existing files are kept without `--force`. With `--force` each
file is replaced in one operation, so that a running broker reads either the old one or the new one.
Source: openssl req, mkcert; RFC 5280 (extensions), as the verification of Python, OpenSSL and Java requires.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.main import add_json
from kohort.cli.output import print_json
from kohort.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
#: Certificates are valid from an hour before they are made, because clocks differ.
_EARLIER: Final = datetime.timedelta(hours=1)
#: The longest common name (X.520).
_LONGEST_NAME: Final = 64
_MOST_DAYS: Final = 36_500
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    tls = subparsers.add_parser("tls", help="certificates for trying TLS: make")
    actions = tls.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = actions.add_parser(
        "make",
        help="make a certificate authority, and certificates of a broker and a client",
        description="Write ca.pem, ca.key, server.pem and client.pem into a directory, and print the options that use "
        "them. They are for trials and tests: the authority's key is in the same directory.",
        run=run_make,
    )
    make.add_argument("directory", metavar="DIR", help="the directory, made if it is missing")
    make.add_argument(
        "--host",
        dest="hosts",
        action="append",
        metavar="HOST",
        help=f"a name or address of the broker, may be repeated (default: {', '.join(_HOSTS)})",
    )
    make.add_argument("--client", default="client", metavar="NAME", help="the client's name (default: client)")
    make.add_argument("--days", type=int, default=365, metavar="N", help="days that they are valid (default: 365)")
    make.add_argument("--force", action="store_true", help="replace existing files")
    add_json(make)


def run_make(options: argparse.Namespace) -> int:
    """Write the certificates, and print the options of broker and client that use them."""
    directory = Path(options.directory)
    hosts = list(dict.fromkeys(options.hosts or _HOSTS))
    texts = make_certificates(hosts, options.client, options.days)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = [name for name in texts if (directory / name).exists()]
    if there and not options.force:
        raise ConfigError(
            f"{directory} has {', '.join(there)} already: --force replaces them, another directory keeps them"
        )
    for name, text in texts.items():
        _write(directory / name, text, _PUBLIC if name == "ca.pem" else _PRIVATE)
    ca, server, client = (str(directory / name) for name in ("ca.pem", "server.pem", "client.pem"))
    broker = {
        "listeners": "SSL://127.0.0.1:9093",
        "ssl.keystore.location": server,
        "ssl.truststore.location": ca,
        "ssl.client.auth": "required",
    }
    clients = {
        "security.protocol": "SSL",
        "ssl.ca.location": ca,
        "ssl.certificate.location": client,
        "ssl.key.location": client,
    }
    principal = f"User:CN={options.client}"
    if options.json:
        print_json({"hosts": hosts, "principal": principal, "broker": broker, "client": clients})
        return 0
    print(f"# the broker, for {', '.join(hosts)}; without ssl.client.auth a client needs no certificate")
    print("\n".join(f"{name}={value}" for name, value in broker.items()))
    print(f"# the client {principal}")
    print("\n".join(f"{name}={value}" for name, value in clients.items()))
    return 0


def make_certificates(hosts: list[str], client: str, days: int) -> dict[str, str]:
    """Make an authority and two certificates that it signs; return the name of each file -> its PEM.

    Raises:
        ConfigError: a host, the client's name or the number of days is not valid in a certificate.
        MissingDependencyError: cryptography is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID
    except ImportError:
        raise MissingDependencyError("cryptography", "tls") from None
    if not 1 <= days <= _MOST_DAYS:
        raise ConfigError(f"--days cannot be {days}: 1 to {_MOST_DAYS} are expected")
    if not 0 < len(client) <= _LONGEST_NAME or not client.isprintable():
        raise ConfigError(
            f"--client cannot be {client[:_LONGEST_NAME]!r}: a name of 1 to {_LONGEST_NAME} characters is expected"
        )
    names = [_general_name(host) for host in hosts]
    # Signatures of this curve are the quickest, and every client supports it.
    ca_key, server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    maker = _Maker(ca_key, days)
    ca = maker.authority()
    common_name = next((host for host in hosts if len(host) <= _LONGEST_NAME), "kohort")
    is_server, is_client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    # The console in a broker is a client of it, by the broker's own certificate.
    server = maker.sign(server_key, common_name, [is_server, is_client], names)
    own = maker.sign(client_key, client, [is_client], [])
    return {
        "ca.key": _key_text(ca_key),
        "ca.pem": _certificate_text(ca),
        "server.pem": _key_text(server_key) + _certificate_text(server),
        "client.pem": _key_text(client_key) + _certificate_text(own),
    }


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not all(each.isascii() and (each.isalnum() or each in "-._*") for each in host):
        raise ConfigError(f"--host cannot be {host!r}: a name in ASCII or an address is expected, without a port")
    return x509.DNSName(host)


class _Maker:
    """A certificate authority whose certificates are all valid for the same time."""

    def __init__(self, key: EllipticCurvePrivateKey, days: int) -> None:
        from cryptography import x509

        self._key: Final = key
        self._begins: Final = datetime.datetime.now(datetime.UTC) - _EARLIER
        self._ends: Final = self._begins + _EARLIER + datetime.timedelta(days=days)
        # The number tells apart the authorities of two runs.
        number = f"{x509.random_serial_number():040x}"[:8]
        self._name: Final = self._named(f"kohort tls make {number}")

    def authority(self) -> x509.Certificate:
        """Make the authority's own certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return builder.add_extension(_usage(signs_certificates=True), critical=True).sign(self._key, hashes.SHA256())

    def sign(
        self, key: EllipticCurvePrivateKey, name: str, uses: list[x509.ObjectIdentifier], hosts: list[x509.GeneralName]
    ) -> x509.Certificate:
        """Make and sign the certificate of a broker or a client."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        builder = (
            self._builder(self._named(name), key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _builder(self, name: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._begins)
            .not_valid_after(self._ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    @staticmethod
    def _named(name: str) -> x509.Name:
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    # Java reads private keys in no other format.
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _certificate_text(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _write(path: Path, text: str, mode: int) -> None:
    """Write a temporary file, then rename it to the path."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
