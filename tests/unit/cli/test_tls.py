"""`kohort tls make`: certificates that both ends believe, keys for their owner alone, and files that stay."""

from __future__ import annotations

import json
import ssl
import stat
import sys
from pathlib import Path

import pytest

from kohort.cli.main import main
from kohort.security.server_tls import ServerTls, verified_chain
from support.dialogues.tls_client import TLS_VALUES, shaken


def printed(text: str) -> dict[str, str]:
    """The options that were printed."""
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def test_both_ends_believe_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the options that it prints, as strictly as Python can verify."""
    assert main(["tls", "make", str(tmp_path / "tls"), "--client", "alice"]) == 0
    said = capsys.readouterr().out
    assert "User:CN=alice" in said
    options = printed(said)
    server = ServerTls({**TLS_VALUES, **{name: value for name, value in options.items() if name in TLS_VALUES}})
    client = ssl.create_default_context(cafile=options["ssl.ca.location"])
    client.load_cert_chain(options["ssl.certificate.location"], options["ssl.key.location"])
    for context in (client, server.context):
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    ours, _ = shaken(server.context, client)
    certificate = ours.getpeercert(True)
    assert certificate is not None
    assert server.rules.principal(certificate) == "User:CN=alice"
    chain = verified_chain(ours)
    assert chain is not None and server.trusts(chain)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    assert main(["tls", "make", str(directory)]) == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "server.pem": 0o600, "client.pem": 0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_files_stay_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of another hand, too; with it all are new."""
    (tmp_path / "server.pem").write_text("mine")
    assert main(["tls", "make", str(tmp_path)]) == 2
    assert "has server.pem already: --force replaces" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["server.pem"]
    assert main(["tls", "make", str(tmp_path), "--force"]) == 0
    first = (tmp_path / "ca.pem").read_text()
    assert main(["tls", "make", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "ca.pem").read_text() != first
    assert len(list(tmp_path.iterdir())) == 4


def test_hosts_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No key is printed."""
    hosts = ["broker.example", "10.0.0.7", "fd00::7"]
    words = ["tls", "make", str(tmp_path), "--json", *(word for host in hosts for word in ("--host", host))]
    assert main(words) == 0
    said = capsys.readouterr().out
    told = json.loads(said)
    assert told["hosts"] == hosts
    assert "PRIVATE" not in said
    from cryptography import x509

    (certificate,) = x509.load_pem_x509_certificates(Path(told["broker"]["ssl.keystore.location"]).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == hosts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "localhost:9093"], "--host cannot be 'localhost:9093'"),
        (["--host", ""], "--host cannot be ''"),
        (["--host", "bröker"], "--host cannot be"),
        (["--client", ""], "--client cannot be ''"),
        (["--client", "x" * 65], "1 to 64 characters"),
        (["--client", "a\nb"], "--client cannot be"),
        (["--days", "0"], "--days cannot be 0"),
        (["--days", "99999999"], "--days cannot be 99999999"),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["tls", "make", str(tmp_path / "tls"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "tls").exists()


def test_without_cryptography_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["tls", "make", str(tmp_path / "tls")]) == 1
    assert "kohort[tls]" in capsys.readouterr().err
