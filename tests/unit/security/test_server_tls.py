"""The certificates of a broker: what is taken, what is refused with which sentence, and files that change."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    load_pem_private_key,
    pkcs12,
)

from kohort.errors import ConfigError, KohortError
from kohort.security import server_tls
from kohort.security.server_tls import ServerTls, explain_client, openssl_name, verified_chain
from support.dialogues.tls_client import TLS_VALUES, connect, shaken
from support.peers.certificates import Certificates

Made = Callable[..., ServerTls]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def store(certificates: Certificates) -> Path:
    return certificates.store("localhost")


def tls_of(**given: Any) -> ServerTls:
    return ServerTls({**TLS_VALUES, **{f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}})


def pkcs12_of(pem: Path, password: bytes | None, *authorities: Path) -> Path:
    """The same as a PKCS#12 file, the authorities in the wrong order."""
    content = pem.read_bytes()
    own, *others = x509.load_pem_x509_certificates(content)
    for each in authorities:
        others.extend(x509.load_pem_x509_certificates(each.read_bytes()))
    how: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    path = pem.with_suffix(".p12")
    key = load_pem_private_key(content, None)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, own, others, how))  # type: ignore[arg-type]
    return path


def in_one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def texts(pem: Path) -> tuple[str, str]:
    """Certificates and key of a file."""
    content = pem.read_text()
    at = content.index("-----BEGIN CERTIFICATE")
    return content[at:], content[:at]


@pytest.mark.parametrize("form", ["file", "text", "one line", "pkcs12", "pkcs12 without a password"])
def test_key_store_is_taken_as_kafka_takes_it(certificates: Certificates, store: Path, form: str) -> None:
    """A client that believes its authority believes the broker."""
    chain, key = texts(store)
    if form == "file":
        tls = tls_of(keystore_location=str(store))
    elif form in ("text", "one line"):
        written = str if form == "text" else in_one_line
        tls = tls_of(keystore_certificate_chain=written(chain), keystore_key=written(key))
    else:
        password = b"door" if form == "pkcs12" else None
        path = pkcs12_of(store, password, certificates.ca)
        tls = tls_of(
            keystore_type="PKCS12", keystore_location=str(path), keystore_password=password and password.decode()
        )
    client = ssl.create_default_context(cafile=str(certificates.ca))
    ours, theirs = shaken(tls.context, client)
    assert ours.version() == theirs.version() == "TLSv1.3"
    assert not tls.asks_certificates


@pytest.mark.parametrize("form", ["file", "text"])
def test_encrypted_key_is_opened_with_its_password(certificates: Certificates, form: str) -> None:
    locked = certificates.store("locked", password=b"door")
    chain, key = texts(locked)
    given: dict[str, str] = (
        {"keystore_location": str(locked)}
        if form == "file"
        else {"keystore_certificate_chain": chain, "keystore_key": key}
    )
    assert tls_of(**given, key_password="door").context
    for password, words in ((None, "ssl.key.password is needed"), ("swordfish", "ssl.key.password does not open")):
        with pytest.raises(ConfigError, match=words) as told:
            tls_of(**given, key_password=password)
        assert "swordfish" not in str(told.value)


@pytest.mark.parametrize("form", ["file", "text", "pkcs12"])
def test_trust_store_is_taken_as_kafka_takes_it(certificates: Certificates, store: Path, form: str) -> None:
    """A client with a certificate of its authority is known, and its chain leads there."""
    if form == "text":
        given: dict[str, str] = {"truststore_certificates": in_one_line(certificates.ca.read_text())}
    elif form == "file":
        given = {"truststore_location": str(certificates.ca)}
    else:
        path = certificates.directory / "trust.p12"
        (ca,) = x509.load_pem_x509_certificates(certificates.ca.read_bytes())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(None, None, None, [ca], BestAvailableEncryption(b"door"))
        )
        given = {"truststore_type": "PKCS12", "truststore_location": str(path), "truststore_password": "door"}
    tls = tls_of(keystore_location=str(store), client_auth="required", **given)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.load_cert_chain(certificates.client)
    ours, _ = shaken(tls.context, client)
    chain = verified_chain(ours)
    assert chain is not None and len(chain) == 2 and tls.trusts(chain)
    certificate = ours.getpeercert(True)
    assert certificate is not None
    assert tls.rules.principal(certificate).startswith("User:CN=client@example.org,OU=")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("asked", ["requested", "required"])
def test_client_without_a_certificate(
    certificates: Certificates, store: Path, asked: str, version: ssl.TLSVersion
) -> None:
    tls = tls_of(keystore_location=str(store), truststore_location=str(certificates.ca), client_auth=asked)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.maximum_version = version
    if asked == "requested":
        ours, _ = shaken(tls.context, client)
        assert ours.getpeercert(True) is None
    else:
        with pytest.raises(ssl.SSLError) as failed:
            shaken(tls.context, client)
        assert explain_client(failed.value) == "the client has no certificate, and ssl.client.auth is required"


def test_session_of_a_client_with_a_certificate_is_not_resumed(certificates: Certificates, store: Path) -> None:
    """It is verified each time; one without is resumed as usual."""
    for asked, resumed in (("required", False), ("none", True)):
        tls = tls_of(keystore_location=str(store), truststore_location=str(certificates.ca), client_auth=asked)
        client = ssl.create_default_context(cafile=str(certificates.ca))
        client.load_cert_chain(certificates.client)
        first = connect(tls.context, client)
        again = connect(tls.context, client, session=first.session)
        assert again.ours.session_reused is resumed


WRONG: dict[str, tuple[Mapping[str, Any], str]] = {
    "nothing": ({}, "ssl.keystore.location is needed where TLS is spoken"),
    "no such file": ({"keystore_location": "/no/such"}, "/no/such cannot be read: No such file"),
    "a folder": ({"keystore_location": "/"}, "cannot be read: Is a directory"),
    "no PEM": ({"keystore_location": "junk"}, "holds no certificate and key in PEM"),
    "a store of Java": ({"keystore_type": "JKS", "keystore_location": "junk.jks"}, "keytool -importkeystore"),
    "a store of Java as PEM": ({"keystore_location": "junk.jks"}, "keytool -importkeystore"),
    "PKCS12 as PEM": ({"keystore_location": "junk.p12"}, "set its type to PKCS12"),
    "no PKCS12": ({"keystore_type": "PKCS12", "keystore_location": "junk"}, "a PKCS12 store is expected"),
    "no certificate": ({"keystore_location": "key"}, "certificate and key in PEM are expected"),
    "another key": ({"keystore_location": "mixed"}, "the key is not the certificate's"),
    "a password of PEM": ({"keystore_location": "good", "keystore_password": "p"}, "is for PKCS12"),
    "both": ({"keystore_location": "good", "keystore_key": "k"}, "leave one of them out"),
    "a key alone": ({"keystore_key": "k"}, "ssl.keystore.certificate.chain is needed, too"),
    "a chain alone": ({"keystore_certificate_chain": "k"}, "ssl.keystore.key is needed, too"),
    "text that is none": ({"keystore_certificate_chain": "c", "keystore_key": "SECRET"}, "PEM is expected"),
    "too long": ({"keystore_location": "long"}, "has more than"),
    "no authorities": ({"keystore_location": "good", "client_auth": "required"}, "needs ssl.truststore.location"),
    "junk as authorities": (
        {"keystore_location": "good", "client_auth": "required", "truststore_location": "junk"},
        "ssl.truststore.location: .*holds no certificates",
    ),
    "authorities twice": (
        {
            "keystore_location": "good",
            "client_auth": "requested",
            "truststore_location": "junk",
            "truststore_certificates": "x",
        },
        "leave one of them out",
    ),
    "a password of authorities": (
        {
            "keystore_location": "good",
            "client_auth": "required",
            "truststore_location": "g",
            "truststore_password": "p",
        },
        "is for PKCS12",
    ),
    "ciphers that nobody knows": ({"keystore_location": "good", "cipher_suites": ["TLS_NONE_WITH_SUCH"]}, "knows none"),
    "some of TLS 1.3": (
        {"keystore_location": "good", "cipher_suites": ["TLS_AES_128_GCM_SHA256"]},
        "all or not at all",
    ),
    "no version": (
        {"keystore_location": "good", "enabled_protocols": ["TLSv1.3"], "protocol": "TLSv1.2"},
        "no version",
    ),
    "rules": ({"keystore_location": "good", "principal_mapping_rules": "default"}, "mapping.rules"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(certificates: Certificates, store: Path, tmp_path: Path, name: str) -> None:
    given, words = WRONG[name]
    other = certificates.store("other")
    files = {
        "junk": "junk",
        "junk.jks": "junk",
        "junk.p12": "junk",
        "key": texts(store)[1],
        "mixed": texts(store)[0] + texts(other)[1],
        "good": store.read_text(),
        "long": "x" * (server_tls.MOST_BYTES + 1),
    }
    taken = dict(given)
    for option, value in given.items():
        if isinstance(value, str) and value in files:
            (tmp_path / value).write_text(files[value])
            taken[option] = str(tmp_path / value)
    with pytest.raises(ConfigError, match=words) as told:
        tls_of(**taken)
    assert "SECRET" not in str(told.value)


def test_pkcs12_without_cryptography_names_the_extra(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pkcs12_of(store, b"door")
    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(KohortError, match=r"kohort\[tls\]"):
        tls_of(keystore_type="PKCS12", keystore_location=str(path), keystore_password="door")


@pytest.mark.parametrize(
    ("given", "versions"),
    [
        ({}, ["TLSv1.2", "TLSv1.3"]),
        ({"enabled_protocols": ["TLSv1.2"]}, ["TLSv1.2"]),
        ({"enabled_protocols": ["TLSv1.3"]}, ["TLSv1.3"]),
        ({"protocol": "TLSv1.2"}, ["TLSv1.2"]),
        ({"cipher_suites": ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}, ["TLSv1.2"]),
        ({"cipher_suites": sorted(server_tls._SUITES_1_3)}, ["TLSv1.3"]),
    ],
)
def test_versions_are_those_that_are_enabled_and_have_suites(
    certificates: Certificates, store: Path, given: Mapping[str, Any], versions: list[str]
) -> None:
    tls = tls_of(keystore_location=str(store), **given)
    spoken = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = ssl.create_default_context(cafile=str(certificates.ca))
        client.minimum_version = client.maximum_version = version
        try:
            ours, _ = shaken(tls.context, client)
        except ssl.SSLError as error:
            assert explain_client(error) == "the client speaks no version of TLS that ssl.enabled.protocols has"
            continue
        spoken.append(ours.version())
        if given.get("cipher_suites") and version is ssl.TLSVersion.TLSv1_2:
            assert ours.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    assert spoken == versions


def test_every_suite_of_tls_1_2_has_its_name_of_java() -> None:
    """Those that OpenSSL knows by the names that Java has for them."""
    known = {each["name"] for each in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}
    for javas in (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
    ):
        assert openssl_name(javas) in known


def test_files_that_change_are_taken_again(certificates: Certificates, tmp_path: Path) -> None:
    """Each new connection gets what is there; half of it changes nothing, and says so until it is whole."""
    path = tmp_path / "server.pem"
    path.write_bytes(certificates.store("old.example").read_bytes())
    tls = tls_of(keystore_location=str(path))
    assert not tls.reload_if_changed()
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.check_hostname = False

    def name() -> object:
        return dict(entry[0] for entry in shaken(tls.context, client)[1].getpeercert()["subject"])["commonName"]  # type: ignore[index]

    new = certificates.store("new.example").read_bytes()
    path.write_bytes(new[: len(new) // 2])
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
            tls.reload_if_changed()
        assert name() == "old.example"
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        tls.reload_if_changed()
    path.write_bytes(new)
    assert tls.reload_if_changed()
    assert name() == "new.example"
    assert not tls.reload_if_changed()


def test_another_file_of_that_name_is_noticed(certificates: Certificates, tmp_path: Path) -> None:
    """Of the same size and time: a link that leads elsewhere, as volumes of containers have it."""
    path, old, new = tmp_path / "server.pem", tmp_path / "old", tmp_path / "new"
    content = certificates.store("localhost").read_bytes()
    for each in (old, new):
        each.write_bytes(content)
        os.utime(each, (1, 1))
    path.symlink_to(old)
    tls = tls_of(keystore_location=str(path))
    (tmp_path / "beside").symlink_to(new)
    os.replace(tmp_path / "beside", path)
    assert tls.reload_if_changed()


def test_authority_that_went_is_trusted_no_more(certificates: Certificates, store: Path, tmp_path: Path) -> None:
    """A renewed one with the same key and name still is; another one of the same name is not."""
    path = tmp_path / "ca.pem"
    path.write_bytes(certificates.ca.read_bytes())
    tls = tls_of(keystore_location=str(store), truststore_location=str(path), client_auth="required")
    client = ssl.create_default_context(cafile=str(certificates.ca))
    client.load_cert_chain(certificates.client)
    chain = verified_chain(shaken(tls.context, client)[0])
    assert chain is not None and tls.trusts(chain)

    (ca,) = x509.load_pem_x509_certificates(certificates.ca.read_bytes())
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    own = load_pem_private_key(certificates.authority.private_key_pem.bytes(), None)
    for key, is_trusted in ((own, True), (ec.generate_private_key(ec.SECP256R1()), False)):
        builder = x509.CertificateBuilder().subject_name(ca.subject).issuer_name(ca.subject)
        builder = builder.public_key(key.public_key()).serial_number(7)  # type: ignore[arg-type]
        builder = builder.not_valid_before(ca.not_valid_before_utc).not_valid_after(ca.not_valid_after_utc)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))  # type: ignore[arg-type]
        assert tls.reload_if_changed()
        assert tls.trusts(chain) is is_trusted


def test_no_key_in_an_error_or_a_text(store: Path) -> None:
    chain, key = texts(store)
    tls = tls_of(keystore_certificate_chain=chain, keystore_key=key)
    secret = key.split("\n")[1]
    assert secret not in repr(tls)
    with pytest.raises(ConfigError) as told:
        tls_of(keystore_certificate_chain=key, keystore_key=chain)
    assert secret not in str(told.value)
