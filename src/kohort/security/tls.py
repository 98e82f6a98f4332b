"""TLS of a client: trusted certificates, its own certificate, and reasons for failed handshakes.

`server_tls` has the broker's side, and uses this module to load certificates and to describe errors.

Laws: names of brokers are verified unless that is switched off; no error contains a key's password. Files are read
once, when a client is made. A key that is given as text is not written to disk if the system has in-memory files.
Source: Apache Kafka's ssl.* with PEM (KIP-651), librdkafka's and kafka-python's options; Python's ssl module.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import Final

from kohort.base import values
from kohort.errors import ConfigError

_BEGIN: Final = "-----BEGIN "
#: File names in a folder of certificate authorities: hashes of their names.
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+")
#: The longest file name that an error repeats.
_LONGEST_NAME: Final = 1_024
#: The folder in which open in-memory files have a path.
_OPEN_FILES: Final = "/proc/self/fd"


@values.value
class CertificateOptions:
    """The names of the options by which a certificate and its key were given, for errors."""

    certificate: str = "ssl.certificate.location"
    key: str = "ssl.key.location"
    password: str = "ssl.key.password"


@values.value
class TlsSettings:
    """The TLS options, `None` if not given; certificates and keys are PEM text or paths of files."""

    context: ssl.SSLContext | None = None
    #: Trusted certificates; `None` means those of the system.
    ca: str | None = None
    #: This client's certificate, for which `key` is.
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    crl: str | None = None
    ciphers: str | None = None
    verifies: bool = True
    verifies_names: bool = True


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """Build a context for connections to brokers.

    Raises:
        ConfigError: a file is missing or has other content, or a key does not fit its certificate or needs a password.
    """
    if settings.context is not None:
        return _given_context(settings)
    context = ssl.create_default_context() if settings.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not settings.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not settings.verifies_names:
        context.check_hostname = False
    if settings.ca is not None:
        _load_ca(context, settings.ca)
    if settings.crl is not None:
        _load_crl(context, settings.crl)
    if settings.ciphers is not None:
        set_ciphers(context, settings.ciphers)
    if settings.certificate is not None:
        load_certificate(context, settings.certificate, settings.key, settings.key_password)
    elif settings.key is not None:
        raise ConfigError("ssl.key.location needs ssl.certificate.location, too: a key alone names no client")
    elif settings.key_password is not None:
        raise ConfigError("ssl.key.password would change nothing: ssl.certificate.location is not set")
    return context


def _given_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the application's own context; raise `ConfigError` if another TLS option is set, too."""
    assert settings.context is not None, "a context is given"
    for option, value in (
        ("ssl.ca.location", settings.ca),
        ("ssl.certificate.location", settings.certificate),
        ("ssl.key.location", settings.key),
        ("ssl.key.password", settings.key_password),
        ("ssl.crl.location", settings.crl),
        ("ssl.cipher.suites", settings.ciphers),
    ):
        if value is not None:
            raise ConfigError(
                f"{option} would change nothing beside ssl.context: set it there, or leave one of them out"
            )
    if settings.context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise ConfigError("ssl.context is one for servers: ssl.create_default_context() makes one for clients")
    return settings.context


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    with reading("ssl.ca.location", ca, f"no certificates in PEM{if_java(ca)}"):
        if _BEGIN in ca:
            context.load_verify_locations(cadata=ca)
        elif os.path.isdir(_path(ca)):
            if not any(_HASHED.fullmatch(name) for name in os.listdir(ca)):
                raise ConfigError(
                    f"ssl.ca.location: no certificate in {named(ca)} has the name that OpenSSL looks for: run openssl "
                    "rehash there"
                )
            context.load_verify_locations(capath=ca)
        else:
            context.load_verify_locations(cafile=ca)


def _load_crl(context: ssl.SSLContext, crl: str) -> None:
    before = context.cert_store_stats()["crl"]
    with reading("ssl.crl.location", crl, "no revocation list in PEM"), file_of(crl) as path:
        context.load_verify_locations(cafile=path)
        if context.cert_store_stats()["crl"] == before:
            raise ssl.SSLError("certificates only")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


@contextmanager
def reading(option: str, given: str, lack: str) -> Iterator[None]:
    """Convert errors of reading a file or a text to a `ConfigError` that names the option."""
    try:
        yield
    except ConfigError:
        raise
    except (ssl.SSLError, TypeError, ValueError):
        # The last two: text that is not ASCII, or a name that no file can have.
        raise ConfigError(f"{option}: {named(given)} holds {lack}") from None
    except OSError as error:
        raise ConfigError(f"{option}: {named(given)} cannot be read: {os.strerror(error.errno or 0)}") from None


def set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    """Set the cipher suites of TLS 1.2, by OpenSSL's names with colons."""
    try:
        context.set_ciphers(ciphers)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {ciphers!r}") from None


_CLIENTS: Final = CertificateOptions()


def load_certificate(
    context: ssl.SSLContext,
    certificate: str,
    key: str | None,
    password: str | None,
    options: CertificateOptions = _CLIENTS,
) -> None:
    """Load a certificate and its key, each a path or PEM text; without `key` the certificate has it.

    Raises:
        ConfigError: a file is missing or has other content, or certificate, key and password do not fit.
    """
    for option, given in ((options.certificate, certificate), (options.key, key)):
        if given is not None and _BEGIN not in given and not os.path.isfile(_path(given)):
            # A given key may be one without its first line.
            name = "of that name" if given is key else named(given)
            raise ConfigError(f"{option}: there is no file {name}")

    has_asked = False

    def ask() -> str:
        # Without this OpenSSL asks at the terminal.
        nonlocal has_asked
        has_asked = True
        if password is None:
            raise ConfigError(f"{options.password} is needed: the key is encrypted")
        return password

    try:
        with file_of(certificate) as chain, nullcontext() if key is None else file_of(key) as own:
            context.load_cert_chain(chain, own, ask)
    except ConfigError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        if "MISMATCH" in (getattr(error, "reason", None) or ""):
            wrong = "the key is not the certificate's"
        elif has_asked:
            # A password that is not UTF-8, or too long for OpenSSL, is wrong, too.
            wrong = f"{options.password} does not open the key"
        else:
            wrong = f"certificate and key in PEM are expected{if_java(certificate)}"
        raise ConfigError(f"{options.certificate}, {options.key}: {wrong}") from None


@contextmanager
def file_of(given: str) -> Iterator[str]:
    """Yield a path: the given one, or for a text that of a temporary file which only this user can read."""
    if _BEGIN not in given:
        yield given
        return
    # OpenSSL takes a chain from a file.
    if hasattr(os, "memfd_create") and os.path.isdir(_OPEN_FILES):
        handle = os.memfd_create("pem")
        path, is_named = f"{_OPEN_FILES}/{handle}", False
    else:
        handle, path = tempfile.mkstemp(suffix=".pem")
        is_named = True
    try:
        with os.fdopen(handle, "w") as file:
            file.write(given)
            file.flush()
            yield path
    finally:
        if is_named:
            os.unlink(path)


def _path(given: str) -> str:
    """Return a path to look for; for text that can be no file name, one that does not exist."""
    try:
        return "" if b"\0" in os.fsencode(given) else given
    except UnicodeEncodeError:
        return ""


def named(given: str) -> str:
    """Return how an error refers to a path; a given text or a long name is not repeated."""
    if _BEGIN in given:
        return "the text"
    if len(given) > _LONGEST_NAME:
        return f"a name of {len(given)} characters"
    return given if given.strip() and given.isprintable() else ascii(given)


def if_java(path: str) -> str:
    """Return how to convert a key store of Java; an empty text for another file."""
    name = path.lower()
    if name.endswith((".p12", ".pfx")):
        return "; such a store is turned into PEM by: openssl pkcs12 -nodes"
    return "; a Java key store is turned into PEM by: keytool -exportcert -rfc" if name.endswith(".jks") else ""


def explain(error: ssl.SSLError, host: str = "it") -> str:
    """Explain in one sentence why a handshake with `host` failed, and what to set."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, host)
    reason = (getattr(error, "reason", None) or "").upper()
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"):
        return "no TLS is spoken there: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the TLS port"
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return "the broker asks for a certificate of this client: set ssl.certificate.location and ssl.key.location"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        said = reason.replace("SSLV3_ALERT_", "").replace("TLSV1_ALERT_", "").replace("_", " ").lower()
        return (
            f"the broker does not accept this client's certificate, or has got none ({said}): ssl.certificate.location"
        )
    if "UNSUPPORTED_PROTOCOL" in reason or "PROTOCOL_VERSION" in reason:
        return "the broker speaks no version of TLS that this Python allows"
    return f"the TLS handshake failed: {reason.replace('_', ' ').lower() or error}"


def _explain_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    code, words = error.verify_code, error.verify_message
    if code in (62, 64):
        return (
            f"the broker's certificate is not for {host}: name the broker as its certificate does, or set "
            "ssl.endpoint.identification.algorithm to none"
        )
    if code in (18, 19, 20, 21):
        return f"the broker's certificate is signed by no trusted authority ({words}): set ssl.ca.location to its CA"
    if code == 10:
        return "the broker's certificate has expired: it has to be renewed there"
    if code == 9:
        return "the broker's certificate is not valid yet: compare the clocks"
    if code == 3:
        return (
            "whether the broker's certificate was revoked is not known: ssl.crl.location has no list of its authority"
        )
    if code == 12:
        return "the revocation list has ended: set ssl.crl.location to a newer one"
    if code == 23:
        return "the broker's certificate has been revoked: it has to be replaced there"
    return f"the broker's certificate is refused: {words}"
