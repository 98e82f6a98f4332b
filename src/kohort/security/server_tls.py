"""TLS of a broker: its certificate, the clients' certificate authorities, and reasons for failed handshakes.

Laws: no error contains a key, a password or the text of an option. Certificates are loaded again when their files
change; files that cannot be read then change nothing. A connected client whose certificate authority is no longer
trusted is found by its chain. Sessions of clients with certificates are not resumed, so that each is verified.
Source: Apache Kafka's `DefaultSslEngineFactory` (PEM: KIP-651); Python's ssl module.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.errors import ConfigError, MissingDependencyError
from kohort.security.principals import MappingRules
from kohort.security.tls import CertificateOptions, if_java, load_certificate, named, reading, set_ciphers
from kohort.security.x509 import parse_certificate

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

#: The longest key or trust store that is read; a store of a thousand authorities is shorter.
MOST_BYTES: Final = 4 * 1024 * 1024
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ASKS: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: The suites of TLS 1.3, which Python's ssl module has all or none of.
_SUITES_1_3: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})
_LINE: Final = 64
#: The form of bytes in DER, as `_ssl` names it.
_DER: Final = 2

#: Modification time, size, inode and device of a file; `None` if there is no file.
Stamp = tuple[int, int, int, int] | None


class ServerTls:
    """The TLS of one listener: the context of new connections, loaded from the listener's files."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Load the key store and the trust store of a listener with these options.

        Raises:
            ConfigError: an option is invalid, or a file is missing or has other content.
            MissingDependencyError: a PKCS12 file is given, and cryptography is not installed.
        """
        self._values: Final = values
        self.rules: Final = MappingRules(values["ssl.principal.mapping.rules"])
        self.asks_certificates: Final = values["ssl.client.auth"] != "none"
        self._stamps = self._look()
        self.context, self._trusted = self._load()

    def reload_if_changed(self) -> bool:
        """Load the certificates again if a file has changed; call this outside of the event loop.

        Returns:
            Whether there is a new context.

        Raises:
            ConfigError: the new files cannot be used; the earlier certificates stay, and the next call tries again.
        """
        stamps = self._look()
        if stamps == self._stamps:
            return False
        loaded = self._load()
        # Files that change while they are read are read again by the next call.
        if self._look() != stamps:
            return False
        (self.context, self._trusted), self._stamps = loaded, stamps
        return True

    def trusts(self, chain: Sequence[bytes]) -> bool:
        """Return whether a verified chain of certificates in DER has one that is still trusted."""
        return any(parse_certificate(each).identity in self._trusted for each in chain)

    def _look(self) -> list[Stamp]:
        paths = (self._values["ssl.keystore.location"], self._values["ssl.truststore.location"])
        return [_stamp(path) for path in paths if path is not None]

    def _load(self) -> tuple[ssl.SSLContext, frozenset[tuple[bytes, bytes]]]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        _set_versions(context, self._values)
        _load_key_store(context, self._values)
        trusted: frozenset[tuple[bytes, bytes]] = frozenset()
        if self.asks_certificates:
            trusted = _load_trust_store(context, self._values)
            context.verify_mode = _ASKS[self._values["ssl.client.auth"]]
            # As in Java, each certificate of a trust store is a trust anchor, even if another one has signed it.
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
            # The certificate of a resumed session would not be verified again.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context, trusted


def build_own_context(values: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the context with which a program reaches a listener of its own: it shows the listener's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _set_versions(context, values)
    _load_key_store(context, values)
    return context


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _set_versions(context: ssl.SSLContext, values: Mapping[str, Any]) -> None:
    """Set versions and suites of a context."""
    newest = _VERSIONS[values["ssl.protocol"]]
    versions = [_VERSIONS[name] for name in values["ssl.enabled.protocols"] if _VERSIONS[name] <= newest]
    suites = [name.strip() for name in values["ssl.cipher.suites"] or () if name.strip()]
    if suites:
        known = _SUITES_1_3.intersection(suites)
        older = [name for name in suites if name not in known]
        if known and known != _SUITES_1_3 and ssl.TLSVersion.TLSv1_3 in versions:
            raise ConfigError(
                "ssl.cipher.suites: Python takes the suites of TLS 1.3 all or not at all: name all of them "
                f"({', '.join(sorted(_SUITES_1_3))}) or none"
            )
        # A version without a suite is disabled.
        for version, its in ((ssl.TLSVersion.TLSv1_3, known), (ssl.TLSVersion.TLSv1_2, older)):
            if not its and version in versions:
                versions.remove(version)
        if older:
            set_ciphers(context, ":".join(map(openssl_name, older)))
    if not versions:
        raise ConfigError(
            "ssl.enabled.protocols has no version that ssl.protocol and ssl.cipher.suites allow: TLSv1.2, TLSv1.3 or "
            "both are expected"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite that is named as in Java; another name stays as it is.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA")
    ('ECDHE-RSA-AES128-GCM-SHA256', 'AES256-SHA')
    >>> openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), openssl_name("ECDHE+AESGCM")
    ('ECDHE-ECDSA-CHACHA20-POLY1305', 'ECDHE+AESGCM')
    """
    exchange, has_cipher, cipher = suite.partition("_WITH_")
    if not has_cipher or not exchange.startswith("TLS_"):
        return suite
    cipher = re.sub(r"^(AES|ARIA|CAMELLIA)_(\d+)", r"\1\2", cipher).replace("_CBC_", "_")
    cipher = re.sub(r"^(CHACHA20_POLY1305)_SHA256$", r"\1", cipher)
    exchange = exchange.removeprefix("TLS_")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")


def _load_key_store(context: ssl.SSLContext, values: Mapping[str, Any]) -> None:
    location, chain, key = (
        values["ssl.keystore.location"],
        _text(values["ssl.keystore.certificate.chain"]),
        _text(values["ssl.keystore.key"]),
    )
    password, key_password = _text(values["ssl.keystore.password"]), _text(values["ssl.key.password"])
    if chain is not None or key is not None:
        if location is not None:
            raise ConfigError("ssl.keystore.location stands beside a key that is given as text: leave one of them out")
        if chain is None or key is None:
            missing = "ssl.keystore.certificate.chain" if chain is None else "ssl.keystore.key"
            raise ConfigError(f"{missing} is needed, too: a certificate and its key go together")
        options = CertificateOptions(certificate="ssl.keystore.certificate.chain", key="ssl.keystore.key")
        for option, text in ((options.certificate, chain), (options.key, key)):
            if _BLOCK.search(text) is None:
                raise ConfigError(f"{option}: PEM is expected, with its lines BEGIN and END")
        load_certificate(context, _in_lines(chain), _in_lines(key), key_password, options)
        return
    if location is None:
        raise ConfigError(
            "ssl.keystore.location is needed where TLS is spoken: a file with the broker's key and certificate "
            "(kohort tls make DIR makes one for trying)"
        )
    options = CertificateOptions(certificate="ssl.keystore.location", key="its key")
    if _is_pkcs12(values["ssl.keystore.type"], location):
        store = _open_pkcs12("ssl.keystore", location, password)
        text = _pem_of(store, location)
        load_certificate(context, text, None, None, options)
        return
    if password is not None:
        raise ConfigError("ssl.keystore.password is for PKCS12: the password of a key in PEM is ssl.key.password")
    content = _read("ssl.keystore.location", location)
    text = content.decode("latin-1")
    if _BLOCK.search(text) is None:
        raise ConfigError(
            f"ssl.keystore.location: {named(location)} holds no certificate and key in PEM{_advice(location)}"
        )
    load_certificate(context, text, None, key_password, options)


def _load_trust_store(context: ssl.SSLContext, values: Mapping[str, Any]) -> frozenset[tuple[bytes, bytes]]:
    """Load the certificate authorities of clients, and return their identities."""
    location, given = values["ssl.truststore.location"], _text(values["ssl.truststore.certificates"])
    password = _text(values["ssl.truststore.password"])
    if location is not None and given is not None:
        raise ConfigError("ssl.truststore.location stands beside ssl.truststore.certificates: leave one of them out")
    if location is None and given is None:
        # Java would trust every public authority.
        raise ConfigError(
            f"ssl.client.auth={values['ssl.client.auth']} needs ssl.truststore.location: the certificates of those "
            "that sign clients' certificates"
        )
    option = "ssl.truststore.certificates" if location is None else "ssl.truststore.location"
    shown = "-----BEGIN " if location is None else location
    if location is not None and _is_pkcs12(values["ssl.truststore.type"], location):
        certificates = _certificates_of(_open_pkcs12("ssl.truststore", location, password))
    elif password is not None:
        raise ConfigError("ssl.truststore.password is for PKCS12: certificates in PEM have none")
    else:
        text = given if location is None else _read(option, location).decode("latin-1")
        with reading(option, shown, "certificates in PEM that are none"):
            certificates = [
                ssl.PEM_cert_to_DER_cert(f"-----BEGIN CERTIFICATE-----{body}-----END CERTIFICATE-----")
                for label, body in _BLOCK.findall(text or "")
                if label in _CERTIFICATES
            ]
    lack = f"no certificates{'' if location is None else _advice(location)}"
    with reading(option, shown, lack):
        context.load_verify_locations(cadata=b"".join(certificates))
        return frozenset(parse_certificate(each).identity for each in certificates)


def _advice(location: str) -> str:
    name = location.lower()
    if name.endswith((".p12", ".pfx")):
        return "; set its type to PKCS12"
    if name.endswith(".jks"):
        return (
            "; keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12 converts a "
            "store of Java"
        )
    return if_java(location)


def _text(value: Any) -> str | None:
    """Return the text of a `Password`, or a plain text as it is."""
    found: str | None = getattr(value, "value", value)
    return found


def _read(option: str, path: str) -> bytes:
    """Read a file; raise `ConfigError` if it is missing or too long."""
    with reading(option, path, "no such thing"), open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{option}: {named(path)} has more than {MOST_BYTES} bytes")
    return content


def _in_lines(text: str) -> str:
    """Split PEM into lines if it was given in one line, as Kafka's options may have it."""

    def in_lines(block: re.Match[str]) -> str:
        label, body = block[1], block[2]
        if "\n" in body.strip() or ":" in body:
            return block[0]
        body = "".join(body.split())
        lines = [body[at : at + _LINE] for at in range(0, len(body), _LINE)]
        return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])

    return "\n".join(map(in_lines, _BLOCK.finditer(text))) + "\n"


def _is_pkcs12(kind: str | None, location: str) -> bool:
    if kind is not None and kind.upper() == "JKS":
        raise ConfigError(f"the key stores of Java (JKS) are not read: {named(location)}{_advice('.jks')}")
    return kind is not None and kind.upper() == "PKCS12"


def _open_pkcs12(prefix: str, location: str, password: str | None) -> PKCS12KeyAndCertificates:
    content = _read(f"{prefix}.location", location)
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingDependencyError("cryptography", "tls") from None
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        wrong = "a PKCS12 store is expected, and its password" if password is None else "its password does not open it"
        raise ConfigError(f"{prefix}.location, {prefix}.password: {named(location)}: {wrong}") from None


def _certificates_of(store: PKCS12KeyAndCertificates) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [*([store.cert] if store.cert is not None else ()), *store.additional_certs]
    return [each.certificate.public_bytes(Encoding.DER) for each in found]


def _pem_of(store: PKCS12KeyAndCertificates, location: str) -> str:
    """Return key and chain of a store as PEM, each certificate before that of its issuer."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ConfigError(f"ssl.keystore.location: {named(location)} holds no key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    first, *others = _certificates_of(store)
    chain, issuers = [first], {parse_certificate(each).subject: each for each in others}
    while (issuer := issuers.pop(parse_certificate(chain[-1]).issuer, None)) is not None:
        chain.append(issuer)
    return key + "".join(map(ssl.DER_cert_to_PEM_cert, chain))


def verified_chain(connection: ssl.SSLObject) -> list[bytes] | None:
    """Return the chain by which a client's certificate was verified, in DER; `None` if unknown."""
    if hasattr(connection, "get_verified_chain"):
        return list(connection.get_verified_chain())
    try:
        # Before Python 3.13 only the wrapped object has the method.
        found = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    except AttributeError:
        return None
    return None if found is None else [each.public_bytes(_DER) for each in found]


def explain_client(error: ssl.SSLError) -> str:
    """Explain in one sentence why a client's handshake failed."""
    reason = (getattr(error, "reason", None) or "").upper()
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the client is refused: {error.verify_message}"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "the client has no certificate, and ssl.client.auth is required"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        said = reason.replace("SSLV3_ALERT_", "").replace("TLSV1_ALERT_", "").replace("_", " ").lower()
        return f"the client does not accept the certificate of the broker ({said})"
    if reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE") or "PROTOCOL_VERSION" in reason:
        return "the client speaks no version of TLS that ssl.enabled.protocols has"
    if reason == "NO_SHARED_CIPHER":
        return "the client knows no cipher suite of this listener"
    return f"the TLS handshake failed: {reason.replace('_', ' ').lower() or 'it ended early'}"
