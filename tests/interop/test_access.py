"""Users, rights and limits of a broker with an authorizer, Apache Kafka's and ours, beside what Kafka's tools say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import Acl, AclFilter, ClientQuota, ScramCredential, TopicPartition
from kohort.errors import AuthenticationError, AuthorizationError, BrokerError, ErrorCode, PartlyDoneError
from kohort.wire.codec import decode
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey, ResponseHeader, response_class, response_header_version
from support.dialogues.broker_wire import RawClient
from support.peers.cli import TIMEOUT_SECONDS, environment, run_kohort
from support.peers.kafka_tools import run_kafka_tool
from support.peers.secured import PASSWORD, USER, SecuredBroker, SecuredKafka, quoted
from support.peers.secured_kohort import SecuredKohort
from support.waiting import until

pytestmark = pytest.mark.interop

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "access.md"
SECRET = "open-sesame"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
SHELL = f"""
kohort() {{ {shlex.quote(sys.executable)} -m kohort.cli.main "$@"; }}
set -eo pipefail
"""


APACHE = pytest.param("apache", marks=pytest.mark.apache)


@pytest.fixture(scope="module", params=[APACHE, "kohort"])
def kafka(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    """Apache Kafka, and kohort's own broker; who comes in without a name, and the user, may everything."""
    properties: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    with SecuredKohort(properties) if request.param == "kohort" else SecuredKafka(properties) as made:
        yield made


@pytest.fixture
def admin(kafka: SecuredBroker) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=kafka.bootstrap("PLAINTEXT")) as admin:
        yield admin


def options_of(kafka: SecuredBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": user,
        "sasl_password": SECRET,
    }


def lets_in(kafka: SecuredBroker, user: str) -> bool:
    """Whether somebody can log in anew."""
    with kohort.Admin(**options_of(kafka, user)) as theirs:
        try:
            theirs.list_topics()
        except AuthenticationError as why:
            assert SECRET not in str(why)
            return False
        return True


def make_user(admin: kohort.Admin, kafka: SecuredBroker, user: str) -> None:
    admin.alter_user_scram_credentials([ScramCredential(user=user, password=SECRET, iterations=4096)])
    until(lambda: lets_in(kafka, user), what=f"{user} can log in")


def test_entries_are_those_of_kafkas_tool(kafka: SecuredBroker, admin: kohort.Admin) -> None:
    """Which adds its own and shows both; words, patterns, hosts and permissions are the same."""
    ours = Acl(
        resource_type="topic", name="par", pattern_type="prefixed", principal="User:a b", operation="alter_configs"
    )
    admin.create_acls([ours, ours])
    tool = partial(run_kafka_tool, ACLS, "--bootstrap-server", kafka.bootstrap("PLAINTEXT"))
    resource = ("--topic", "par", "--resource-pattern-type", "prefixed")
    tool("--add", "--deny-principal", "User:eve", "--operation", "Read", "--deny-host", "10.0.0.1", *resource)
    theirs = Acl(
        resource_type="topic", name="par", pattern_type="prefixed", principal="User:eve", host="10.0.0.1",
        operation="read", permission="deny",
    )  # fmt: skip
    about = AclFilter(resource_type="topic", name="parity", pattern_type="match")
    until(lambda: len(admin.describe_acls(about)) == 2, what="both entries are known")
    assert admin.describe_acls(about) == [ours, theirs]
    said = tool("--list", *resource)
    assert "(principal=User:eve, host=10.0.0.1, operation=READ, permissionType=DENY)" in said
    assert "(principal=User:a b, host=*, operation=ALTER_CONFIGS, permissionType=ALLOW)" in said
    assert admin.delete_acls([theirs, ours, about]) == [[theirs], [ours], [ours, theirs]]
    until(lambda: admin.describe_acls(about) == [], what="both entries are gone")


def test_users_and_limits_are_those_of_kafkas_tool(kafka: SecuredBroker, admin: kohort.Admin) -> None:
    """Both mechanisms by one call; what the tool has set is described, and what we set the tool describes."""
    mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    admin.alter_user_scram_credentials(
        ScramCredential(user="carol", password=SECRET, mechanism=each, iterations=4096 * number)
        for number, each in enumerate(mechanisms, 1)
    )
    admin.alter_client_quotas([ClientQuota(entity={"user": "carol"}, values={"producer_byte_rate": 1e6})])
    until(lambda: len(admin.describe_client_quotas({"user": "carol"})) == 1, what="the limit is known")
    said = run_kafka_tool(
        CONFIGS, "--bootstrap-server", kafka.bootstrap("PLAINTEXT"), "--describe", "--entity-type", "users"
    )
    assert "Quota configs for user-principal 'carol' are producer_byte_rate=1000000.0" in said
    (line,) = [
        line for line in said.splitlines() if line.startswith("SCRAM credential configs for user-principal 'carol'")
    ]
    assert "SCRAM-SHA-256=iterations=4096" in line and "SCRAM-SHA-512=iterations=8192" in line
    of_tool = [row for row in admin.describe_user_scram_credentials() if row.user == USER]
    assert [(row.mechanism, row.iterations) for row in of_tool] == [(each, 4096) for each in mechanisms]
    with pytest.raises(PartlyDoneError, match="2 of 3 done") as some:
        admin.alter_user_scram_credentials(
            deletions=[("carol", each) for each in mechanisms] + [("dave", mechanisms[0])]
        )
    assert list(some.value.failed) == [("dave", mechanisms[0])]
    admin.alter_client_quotas([ClientQuota(entity={"user": "carol"}, values={"producer_byte_rate": None})])
    until(lambda: admin.describe_client_quotas({"user": "carol"}) == [], what="the limit is gone")
    with pytest.raises(BrokerError, match="no user dave") as nobody:
        admin.describe_user_scram_credentials(["dave"])
    assert nobody.value.code is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("kafka", [APACHE], indirect=True)
def test_our_broker_answers_about_users_as_apache_kafka_does(kafka: SecuredBroker) -> None:
    """Each change of users, and what is described after it: codes and words; then the words of logins."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        f"PlainLoginModule required user_{USER}={quoted(PASSWORD)};",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "super.users": f"User:ANONYMOUS;User:{USER}",
    }
    with kohort.Broker(config=config) as ours:
        for listener, play in (("PLAINTEXT", users_told), ("SASL_PLAINTEXT", logins_told)):
            said = [play(int(at.rpartition(":")[2])) for at in (kafka.bootstrap(listener), ours.bootstrap_of(listener))]
            for theirs, of_ours in zip(*said, strict=True):
                assert of_ours == theirs


def users_told(port: int) -> list[object]:
    """What a broker says to changes of users that are there, are not, are odd, are named twice."""
    steps: list[list[tuple[str, int, int] | tuple[str, int]]] = [
        [("hal", 1, 4096)],
        [("hal", 2, 16384), ("ida", 1, 4095), ("joe", 1, 16385), ("", 1, 4096), ("kim", 3, 4096), ("lea", 0, 4096)],
        [("hal", 1, 4096), ("hal", 2, 4096), ("ida", 1, 4096)],
        [("hal", 1), ("hal", 1, 8192)],
        [("nobody", 1), ("", 1), ("hal", 7), ("ida", 2)],
        [("hal", 1), ("ida", 1), ("ida", 1)],
        [("hal", 2), ("ida", 1)],
    ]
    said: list[object] = []
    with RawClient(port) as client:
        for number, step in enumerate(steps):
            # Apache Kafka's broker hears of a change from its controller, of all in one request at once: the last row
            # is another one with each step, so that it says from when on the broker is asked.
            last = ("zoe", 2, 4096 + number)
            request = AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=row[0], mechanism=row[1]) for row in step if len(row) == 2],
                upsertions=[
                    ScramCredentialUpsertion(
                        name=row[0], mechanism=row[1], iterations=row[2], salt=b"salt", salted_password=b"x" * 32
                    )
                    for row in (*step, last)
                    if len(row) == 3
                ],
            )
            answer = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
            said.append(sorted((row.user, row.error_code, row.error_message) for row in answer.results))
            until(
                lambda iterations=f"iterations={last[2]}": iterations in str(described(client, ["zoe"])),  # type: ignore[misc]
                what="the broker has heard of the change",
            )
            said += [described(client, names) for names in (["hal"], ["hal", "ida", "hal", "nobody"])]
    return said


def described(client: RawClient, names: list[str]) -> object:
    """What a broker knows of these users."""
    asked = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, asked)
    rows = [
        (row.user, row.error_code, row.error_message, sorted(map(str, row.credential_infos))) for row in answer.results
    ]
    return answer.error_code, answer.error_message, sorted(rows)


def logins_told(port: int) -> list[object]:
    """What a listener with logins says to those that fail, and out of turn."""
    plain = f"\0{USER}\0{PASSWORD}".encode()
    said: list[object] = []

    def converse(*messages: tuple[ApiKey, int, Any]) -> None:
        with RawClient(port) as client:
            for key, version, message in messages:
                client.send(key, version, message)
                frame = client.receive_frame()
                if not frame:
                    said.append("closed")
                    return
                at = decode(ResponseHeader, response_header_version(key, version), frame)[1]
                answer: Any = decode(response_class(key), version, frame, at)[0]
                if key is ApiKey.SASL_HANDSHAKE:
                    said.append((answer.error_code, sorted({*answer.mechanisms} - {"OAUTHBEARER"})))
                else:
                    said.append((answer.error_code, answer.error_message, answer.session_lifetime_ms))
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE):
                said.append(client.is_closed_by_broker())

    def choose(name: str, version: int = 1) -> tuple[ApiKey, int, Any]:
        return ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=name)

    def say(token: bytes, version: int = 2) -> tuple[ApiKey, int, Any]:
        return ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token)

    converse(choose("PLAIN"), say(plain))
    converse(choose("PLAIN"), say(plain, 0))
    converse(choose("PLAIN"), say(plain + b"x"))
    converse(choose("PLAIN"), say(b"\0mallory\0x", 1))
    converse(choose("PLAIN"), say(b"root" + plain))
    converse(choose("PLAIN"), say(b"\0\0x"))
    converse(choose("PLAIN"), say(b"\0x\0"))
    converse(choose("PLAIN"), say(b"\0x"))
    converse(choose("SCRAM-SHA-512"), say(b"nonsense"))
    converse(choose("SCRAM-SHA-256"), say(b"n,a=root,n=alice,r=nonce"))
    converse(choose("GSSAPI"))
    converse(choose("GSSAPI", 0))
    converse(choose("plain"))
    # Sessions have no end here, so that there is no later login.
    converse(choose("PLAIN"), say(plain), choose("PLAIN"), say(plain + b"x"))
    converse(choose("PLAIN"), say(plain), choose("NONE"))
    return said


def test_right_that_is_taken_away_is_named_by_every_client(
    kafka: SecuredBroker, admin: kohort.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that is missing, on what; with it all goes on."""
    make_user(admin, kafka, "gina")
    admin.create_topic("rights", 1)
    options = options_of(kafka, "gina")

    def right(operation: str, kind: str) -> Acl:
        return Acl(resource_type=kind, name="rights", principal="User:gina", operation=operation)

    def missing(call: Callable[[], object]) -> tuple[str, str, str]:
        """What it is that ends a call, when it ends so."""
        found: list[AuthorizationError] = []

        def ends() -> bool:
            try:
                call()
            except AuthorizationError as why:
                found.append(why)
            return bool(found)

        until(ends, what="a right is missing")
        assert "kohort acl add --principal User:NAME" in str(found[0])
        return found[0].operation, found[0].resource_type, found[0].name

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "read again" in record.getMessage()]

    def works(call: Callable[[], object]) -> bool:
        with contextlib.suppress(AuthorizationError):
            return bool(call())
        return False

    read, write, member = right("read", "topic"), right("write", "topic"), right("read", "group")

    first = TopicPartition("rights", 0)

    def consumer_of_them() -> kohort.Consumer:
        consumer = kohort.Consumer(**options, group_id="rights", auto_offset_reset="earliest")
        consumer.subscribe(["rights"])
        return consumer

    with kohort.Producer(**options) as producer:

        def send() -> object:
            return producer.send("rights", b"x").result(20)

        assert missing(send) == ("write", "topic", "rights")
        with consumer_of_them() as consumer:
            assert missing(lambda: consumer.poll(0.2)) == ("read", "group", "rights")
        admin.create_acls([member, write])
        until(lambda: works(send), what="gina may write")
        with consumer_of_them() as consumer:
            poll = partial(consumer.poll, 0.2)
            assert missing(poll) == ("read", "topic", "rights")
            admin.create_acls([read])
            until(lambda: works(poll), what="gina may read")
            until(lambda: lines() == ["rights-0 can be read again"], what="a line says so")
            # The other way about: what was read goes on where it was.
            admin.delete_acls([read])
            assert missing(poll) == ("read", "topic", "rights")
            send()
            assert poll() == []
            admin.create_acls([read])
            until(lambda: works(poll), what="gina may read again")
            until(lambda: lines() == ["rights-0 can be read again"] * 2, what="a line says so")
            assert consumer.position(first) == 2
            admin.delete_acls([write, read])
            assert missing(send) == ("write", "topic", "rights")
            assert missing(poll) == ("read", "topic", "rights")
            assert missing(lambda: consumer.commit({first: 0})) == ("read", "topic", "rights")
            admin.delete_acls([member])
            assert missing(poll) == ("read", "group", "rights")
    with kohort.Admin(**options) as theirs:
        calls: list[tuple[str, Callable[[], object]]] = [
            ("describe", theirs.describe_acls),
            ("alter", lambda: theirs.create_acls([read])),
            ("alter", lambda: theirs.delete_acls([read])),
            ("describe", theirs.describe_user_scram_credentials),
            ("alter", lambda: theirs.alter_user_scram_credentials(deletions=[("gina", "SCRAM-SHA-512")])),
            ("describe_configs", theirs.describe_client_quotas),
            ("alter_configs", lambda: theirs.alter_client_quotas([ClientQuota(entity={"user": "gina"}, values={})])),
        ]
        assert [missing(call) for _, call in calls] == [(each, "cluster", "kafka-cluster") for each, _ in calls]


def test_user_that_is_removed_stays_only_where_it_is(kafka: SecuredBroker, admin: kohort.Admin) -> None:
    """From the command line; a new connection is refused. The one that is open goes on, but with our broker it ends."""
    make_user(admin, kafka, "frank")
    here = ("-b", kafka.bootstrap("PLAINTEXT"))
    with kohort.Admin(**options_of(kafka, "frank")) as theirs:
        theirs.list_topics()
        shown = run_kohort("user", "remove", "frank", *here)
        assert "nothing is changed yet: --execute does it" in shown.err
        assert lets_in(kafka, "frank")
        assert run_kohort("user", "remove", "frank", "--execute", *here).out == shown.out
        until(lambda: not lets_in(kafka, "frank"), what="frank is not let in")
        with contextlib.nullcontext() if isinstance(kafka, SecuredKafka) else pytest.raises(AuthenticationError):
            theirs.list_topics()


def test_document_says_what_happens(kafka: SecuredBroker, tmp_path: Path) -> None:
    """Its blocks one after the other; what looks a change up does so until the broker has heard of it."""
    text = DOCUMENT.read_text()
    for written, real in [
        ("kafka.example:9094", kafka.bootstrap("SASL_SSL")),
        ('"ca.pem"', repr(str(kafka.certificates.ca))),
        ('"wonder"', repr(PASSWORD)),
    ]:
        text = text.replace(written, real)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) >= 10
    with contextlib.ExitStack() as stack:
        for language, code, shown in blocks:
            run = run_python if language == "python" else partial(run_shell, kafka, tmp_path)
            prints_in_time(partial(run, code, names), shown)
            if "admin" in names:
                stack.callback(names["admin"].close)


def prints_in_time(run: Callable[[], str], shown: str) -> None:
    printed: list[str] = []

    def is_there() -> bool:
        printed.append(run())
        return printed[-1] == shown

    until(is_there, what=lambda: f"{shown} is printed, and not {printed[-1]}")


def run_python(code: str, names: dict[str, Any]) -> str:
    """What a block prints; an error of a broker that has not heard of something yet is printed, too."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, "docs/reference/access.md", "exec"), names)
        except BrokerError as why:
            print(why)
    return printed.getvalue()


def run_shell(kafka: SecuredBroker, directory: Path, code: str, _: dict[str, Any]) -> str:
    """What a block prints, by an administrator without a name."""
    done = subprocess.run(
        ["bash", "-c", SHELL + code],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=TIMEOUT_SECONDS * 3,
        check=False,
        env=environment({"KOHORT_BOOTSTRAP": kafka.bootstrap("PLAINTEXT")}),
    )
    assert (done.returncode, done.stderr) == (0, ""), code
    return done.stdout
