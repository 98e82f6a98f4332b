"""Certificates for one test: an authority of its own, and what it has signed or taken back."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization


class Certificates:
    """An authority, and what it has signed, as files in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.authority: Final = trustme.CA()
        self.ca: Final = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        #: Of a client.
        self.client: Final = directory / "client.pem"
        self.client: Final = self.store("client@example.org")

    def store(
        self,
        *names: str,
        begins: datetime.datetime | None = None,
        ends: datetime.datetime | None = None,
        password: bytes | None = None,
    ) -> Path:
        """Key and chain of somebody with these names, in one file; the key encrypted if there is a password."""
        issued = self.authority.issue_cert(*names, common_name=names[0], not_before=begins, not_after=ends)
        # Java reads keys in the form of PKCS 8 only.
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password)
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        path = self.directory / f"{names[0]}.pem"
        path.write_bytes(text + b"".join(each.bytes() for each in issued.cert_chain_pems))
        return path

    def revoked(self, store: Path, *, ended: bool = False) -> Path:
        """The authority's list of those that it has taken back, of which that one is one; or one of yesterday."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        serial = x509.load_pem_x509_certificates(store.read_bytes())[0].serial_number
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - day).build()
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject).add_revoked_certificate(one)
        crl = (
            builder.last_update(now - 2 * day).next_update(now - day if ended else now + day).sign(key, hashes.SHA256())
        )  # type: ignore[arg-type]
        path = self.directory / f"{store.stem}-crl.pem"
        path.write_bytes(crl.public_bytes(serialization.Encoding.PEM))
        return path


def server_context(store: Path, *, client_ca: Path | None = None) -> ssl.SSLContext:
    """What a server needs that is who `store` says; with an authority it asks for its clients' certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context
