"""TLS over a real socket: who is believed, and which sentence says why somebody is not."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.errors import ConfigError
from kohort.security.tls import TlsSettings, build_context
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.rig import Rig
from support.dialogues.scripted_broker import ScriptedBroker
from support.peers.certificates import Certificates, server_context

BEAT = HeartbeatRequest(group_id="g")
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def beat(api: ApiKey, version: int, request: Message) -> Message:
    """Answers everything."""
    return HeartbeatResponse()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def rigged() -> Iterator[Callable[..., Rig]]:
    """Makes clients that are closed at the end."""
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        made.append(Rig(security_protocol="SSL", **options))
        return made[-1]

    yield make
    for each in made:
        each.thread.stop()


def failed_detail(rig: Rig, tls: ssl.SSLContext | None, *failures: Failure) -> str:
    """What a client says that meets a broker with that TLS; `failures`: how it may end."""
    with ScriptedBroker(beat, tls=tls) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()
    assert failed.failure in (failures or (Failure.NOT_AUTHENTICATED,)), failed
    return failed.detail


@pytest.mark.parametrize("form", ["file", "text", "context"])
def test_broker_with_a_certificate_is_believed(
    rigged: Callable[..., Rig], certificates: Certificates, form: str
) -> None:
    """Its authority is given as people have it."""
    given: dict[str, object] = {
        "file": {"ssl_cafile": str(certificates.ca)},
        "text": {"ssl_truststore_certificates": certificates.ca.read_text()},
        "context": {"ssl_context": ssl.create_default_context(cafile=str(certificates.ca))},
    }[form]
    rig = rigged(**given)
    with ScriptedBroker(beat, tls=server_context(certificates.store("127.0.0.1"))) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()


def test_client_shows_its_own_certificate(rigged: Callable[..., Rig], certificates: Certificates) -> None:
    """mTLS, with a key that is encrypted; a broker that sees none says so."""
    own = certificates.store("client.example", password=b"door")
    tls = server_context(certificates.store("127.0.0.1"), client_ca=certificates.ca)
    named = rigged(ssl_cafile=str(certificates.ca), ssl_certfile=str(own), ssl_key_password="door")
    with ScriptedBroker(beat, tls=tls) as broker:
        named.send(broker.endpoint, BEAT)
        named.response()

    # The broker's word may be lost behind the end of the connection.
    nameless = rigged(ssl_cafile=str(certificates.ca))
    said = failed_detail(nameless, tls, Failure.NOT_AUTHENTICATED, Failure.NO_BROKER)
    assert "ssl.certificate.location" in said


def test_stranger_is_not_believed(rigged: Callable[..., Rig], certificates: Certificates, tmp_path: Path) -> None:
    """One that nobody has signed who is believed; and every one is, if that is what is set."""
    tls = server_context(Certificates(tmp_path).store("127.0.0.1"))

    assert "set ssl.ca.location to its CA" in failed_detail(rigged(ssl_cafile=str(certificates.ca)), tls)
    assert "set ssl.ca.location to its CA" in failed_detail(rigged(), tls)
    careless = rigged(enable_ssl_certificate_verification=False)
    with ScriptedBroker(beat, tls=tls) as broker:
        careless.send(broker.endpoint, BEAT)
        careless.response()


def test_certificate_of_another_host(rigged: Callable[..., Rig], certificates: Certificates) -> None:
    """Names are compared, unless that is switched off."""
    tls = server_context(certificates.store("kafka.example"))

    assert "not for 127.0.0.1" in failed_detail(rigged(ssl_cafile=str(certificates.ca)), tls)
    for none in ("none", "", False):
        nameless = rigged(ssl_cafile=str(certificates.ca), ssl_endpoint_identification_algorithm=none)
        with ScriptedBroker(beat, tls=tls) as broker:
            nameless.send(broker.endpoint, BEAT)
            nameless.response()


def test_certificate_that_has_ended_or_was_taken_back(rigged: Callable[..., Rig], certificates: Certificates) -> None:
    """Each in its own words."""
    ended = server_context(certificates.store("127.0.0.1", ends=LONG_AGO))
    assert "has expired" in failed_detail(rigged(ssl_cafile=str(certificates.ca)), ended)

    store = certificates.store("127.0.0.1")
    rig = rigged(ssl_cafile=str(certificates.ca), ssl_crlfile=str(certificates.revoked(store)))
    assert "has been revoked" in failed_detail(rig, server_context(store))


def test_port_without_tls_is_told_apart(rigged: Callable[..., Rig], certificates: Certificates) -> None:
    """It reads the handshake as a frame, and answers or leaves."""
    detail = failed_detail(rigged(ssl_cafile=str(certificates.ca)), None, Failure.UNREACHABLE)
    assert "is TLS spoken there?" in detail


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl_cafile": "/nowhere/ca.pem"}, "ssl.ca.location: /nowhere/ca.pem cannot be read: No such file"),
        ({"ssl_cafile": "EMPTY"}, "holds no certificates in PEM"),
        ({"ssl_cafile": "DER"}, "holds no certificates in PEM"),
        ({"ssl_cafile": "KEY"}, "holds no certificates in PEM"),
        ({"ssl_cafile": "P12"}, "turned into PEM by: openssl pkcs12"),
        ({"ssl_cafile": "JKS"}, "turned into PEM by: keytool"),
        ({"ssl_cafile": "FOLDER"}, "run openssl rehash"),
        ({"ssl_cafile": ""}, "ssl.ca.location: '' cannot be read"),
        ({"ssl_cafile": "a\0b"}, r"ssl.ca.location: 'a\\x00b' holds no"),
        ({"ssl_cafile": "\ud800"}, r"ssl.ca.location: '\\ud800' holds no"),
        ({"ssl_cafile": "x" * 5_000}, "a name of 5000 characters cannot be read: File name too long"),
        ({"ssl_cafile": "-----BEGIN CERTIFICATE-----\nä"}, "the text holds no certificates in PEM"),
        ({"ssl_certfile": "/nowhere/me.pem"}, "ssl.certificate.location: there is no file /nowhere"),
        ({"ssl_certfile": "FOLDER"}, "ssl.certificate.location: there is no file"),
        ({"ssl_certfile": "EMPTY"}, "certificate and key in PEM are expected"),
        ({"ssl_certfile": "DER"}, "certificate and key in PEM are expected"),
        ({"ssl_certfile": "P12"}, "turned into PEM by: openssl pkcs12"),
        ({"ssl_certfile": "-----BEGIN \ud800"}, "certificate and key in PEM are expected"),
        ({"ssl_certfile": "LOCKED"}, "ssl.key.password is needed"),
        ({"ssl_certfile": "LOCKED", "ssl_password": "wrong"}, "ssl.key.password does not open the key"),
        ({"ssl_certfile": "LOCKED", "ssl_password": "wrong" * 200_000}, "ssl.key.password does not open the key"),
        ({"ssl_certfile": "LOCKED", "ssl_password": "wrong\ud800"}, "ssl.key.password does not open the key"),
        ({"ssl_password": "wrong"}, "ssl.key.password would change nothing"),
        ({"ssl_keyfile": "STORE"}, "ssl.key.location needs ssl.certificate.location"),
        ({"ssl_certfile": "STORE", "ssl_keyfile": "OTHER"}, "the key is not the certificate's"),
        ({"ssl_certfile": "STORE", "ssl_keyfile": "DER"}, "certificate and key in PEM are expected"),
        ({"ssl_certfile": "STORE", "ssl_keyfile": "MIGHAgEAwrong"}, "ssl.key.location: there is no file of that name"),
        ({"ssl_crlfile": "/nowhere/crl.pem"}, "ssl.crl.location: /nowhere/crl.pem cannot be read"),
        ({"ssl_crlfile": "STORE"}, "holds no revocation list in PEM"),
        ({"ssl_crlfile": "EMPTY"}, "holds no revocation list in PEM"),
        ({"ssl_ciphers": "NONE-SUCH"}, "OpenSSL knows none of 'NONE-SUCH'"),
        ({"ssl_ciphers": "a\0b"}, "OpenSSL knows none of"),
        ({"ssl_truststore_type": "JKS"}, "one of PEM is expected"),
        ({"ssl_context": "tls"}, "an ssl.SSLContext is expected"),
        ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "ssl.context is one for servers"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_cafile": "EMPTY"},
            "would change nothing beside ssl.context",
        ),
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "https or none is expected"),
    ],
)
def test_what_cannot_be_set_up_says_which_option(
    certificates: Certificates, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """When the client is made, in one sentence, and without what may be a secret."""
    store = certificates.store("me.example")
    files = {
        "EMPTY": tmp_path / "empty.pem",
        "DER": tmp_path / "me.der",
        "KEY": tmp_path / "key.pem",
        "P12": tmp_path / "me.p12",
        "JKS": tmp_path / "me.jks",
        "FOLDER": tmp_path,
        "STORE": store,
        "OTHER": certificates.store("other.example"),
        "LOCKED": certificates.store("locked.example", password=b"door"),
    }
    files["EMPTY"].touch()
    files["KEY"].write_text(store.read_text().partition("-----BEGIN CERTIFICATE")[0])
    for name in ("DER", "P12", "JKS"):
        files[name].write_bytes(b"\x30\x82\xfe\xed" * 50)
    given = {name: files.get(value, value) if isinstance(value, str) else value for name, value in options.items()}

    with pytest.raises(ConfigError, match=says) as caught:
        Rig(security_protocol="SSL", **given)
    assert "wrong" not in str(caught.value)


def test_revocation_lists_are_texts_as_well_and_have_an_end(
    rigged: Callable[..., Rig], certificates: Certificates, tmp_path: Path
) -> None:
    """One of another authority says nothing, and one that has ended says nothing any more."""
    tls = server_context(certificates.store("127.0.0.1"))
    other = Certificates(tmp_path)
    foreign = other.revoked(other.store("127.0.0.1")).read_text()
    own = certificates.revoked(certificates.store("somebody.example"), ended=True).read_text()

    nobodys = rigged(ssl_cafile=str(certificates.ca), ssl_crlfile=foreign)
    assert "ssl.crl.location has no list of its authority" in failed_detail(nobodys, tls)
    old = rigged(ssl_cafile=str(certificates.ca), ssl_crlfile=own)
    assert "the revocation list has ended" in failed_detail(old, tls)


def test_certificate_of_a_broker_is_replaced_while_a_client_works(
    rigged: Callable[..., Rig], certificates: Certificates, tmp_path: Path
) -> None:
    """What is open goes on, the next connection fails in one sentence; all is well when the old one is back."""
    good, other = (server_context(each.store("127.0.0.1")) for each in (certificates, Certificates(tmp_path)))
    rig = rigged(ssl_cafile=str(certificates.ca))
    with ScriptedBroker(beat, tls=good) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
        broker.tls = other
        rig.send(broker.endpoint, BEAT)
        rig.response()
        rig.send(broker.endpoint, BEAT, lane=Lane.FETCH)
        assert "set ssl.ca.location to its CA" in rig.failure().detail
        rig.send(broker.endpoint, BEAT)
        rig.response()
        broker.tls = good
        rig.send(broker.endpoint, BEAT, lane=Lane.FETCH)
        rig.response()


#: What may be set beside an authority, by the names of files that a test fills in.
BESIDE = ({}, {"certificate": "own"}, {"certificate": "own", "ciphers": "ECDHE+AESGCM"}, {"crl": "crl"})


@pytest.mark.parametrize("beside", BESIDE, ids=lambda each: "+".join(each) or "nothing")
@pytest.mark.parametrize("has_ca", [True, False], ids=["ca", "system"])
def test_brokers_are_verified_whatever_else_is_set(
    certificates: Certificates, beside: dict[str, str], *, has_ca: bool
) -> None:
    """Only the option that says so switches it off; names alone are switched off by theirs, and nothing else."""
    files = {"own": str(certificates.client), "crl": str(certificates.revoked(certificates.client))}
    given: dict[str, Any] = {name: files.get(value, value) for name, value in beside.items()}
    given |= {"ca": str(certificates.ca)} if has_ca else {}

    context = build_context(TlsSettings(**given))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    if has_ca:
        assert context.cert_store_stats()["x509_ca"] == 1, "an authority is given, and only that is believed"
    nameless = build_context(TlsSettings(**given, verifies_names=False))
    assert (nameless.verify_mode, nameless.check_hostname) == (ssl.CERT_REQUIRED, False)
    careless = build_context(TlsSettings(**given, verifies=False))
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize("names", ["https", "none"])
def test_stranger_is_not_believed_by_a_client_with_a_certificate(
    rigged: Callable[..., Rig], certificates: Certificates, *, tmp_path: Path, names: str
) -> None:
    """Over a socket: neither its own certificate nor names that are not compared make it believe anybody."""
    tls = server_context(Certificates(tmp_path).store("127.0.0.1"))
    own = {"ssl_cafile": str(certificates.ca), "ssl_certfile": str(certificates.client)}
    rig = rigged(**own, ssl_endpoint_identification_algorithm=names)
    assert "set ssl.ca.location to its CA" in failed_detail(rig, tls)
