"""A client that logs in at one connection of a broker, message by message."""

from __future__ import annotations

from typing import Any

from kohort.broker.context import BrokerContext
from kohort.security.scram import ScramExchange, salted_password
from kohort.storage.catalog import ScramUser
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection

PASSWORDS = {"alice": "wonder", "bob": "can"}
SCRAM = "SCRAM-SHA-256"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{password}"' for name, password in PASSWORDS.items()
)


def config_of(**more: object) -> dict[str, object]:
    """A broker with one listener, whose users log in by PLAIN and both kinds of SCRAM."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS + ";",
        "super.users": "User:alice;User:bob",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def upsertion(name: str, password: str, *, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    """A user's new password, salted by its client."""
    names = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
    salted = salted_password(names[mechanism], password, salt=b"salt", iterations=min(iterations, 4096))
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


class LoginDialogue(WiredConnection):
    """One connection, and what its client says."""

    async def versions(self) -> None:
        """It asks which APIs there are."""
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await self.ask(ApiKey.API_VERSIONS, 3, request)
        assert answer.error_code == 0

    async def choose(self, mechanism: str, version: int = 1) -> Any:
        """It chooses a mechanism."""
        return await self.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))

    async def say(self, token: bytes, version: int = 2) -> Any:
        """It says something in words of the mechanism."""
        return await self.ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))

    async def plain(self, name: str, password: str) -> Any:
        """It logs in by PLAIN; the answer is that to its password."""
        assert (await self.choose("PLAIN")).error_code == 0
        return await self.say(f"\0{name}\0{password}".encode())

    async def scram(self, name: str, password: str, *, mechanism: str = SCRAM) -> Any:
        """It logs in by SCRAM; the answer is that to its proof."""
        exchange = ScramExchange(mechanism, name, password, nonce="ours")
        assert (await self.choose(mechanism)).error_code == 0
        challenge = await self.say(exchange.first())
        assert challenge.error_code == 0
        end = await self.say(exchange.reply(challenge.auth_bytes))
        if end.error_code == 0:
            assert exchange.reply(end.auth_bytes) == b""
        return end

    async def metadata(self) -> Any:
        """It asks for topics."""
        return await self.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[]))

    def send_metadata(self) -> None:
        """It asks, and waits for nothing."""
        self.feed(encode_request(ApiKey.METADATA, 9, MetadataRequest(topics=[])))

    async def change_users(self, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> list[Any]:
        """It sets and removes users."""
        request = AlterUserScramCredentialsRequest(
            deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
            upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
        )
        answer = await self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        return [(row.user, row.error_code, row.error_message) for row in answer.results]


def users_of(context: BrokerContext) -> list[ScramUser]:
    """The SCRAM users of a broker."""
    return list(context.store.changes.catalog.scram_users.values())
