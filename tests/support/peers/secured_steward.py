"""Whoever administers a secured cluster while others work: users, and certificates of listeners."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.peers.secured import SecuredBroker
from support.peers.secured_kohort import SecuredKohort

PATIENCE_S: Final = 30.0


class Steward:
    """Comes in by a door of its own, and with a client of others."""

    def __init__(self, kafka: SecuredBroker) -> None:
        self._kafka: Final = kafka
        self._client = AdminClient({"bootstrap.servers": kafka.bootstrap("PLAINTEXT")})

    def allow(self, user: str, password: str) -> None:
        """A user gets this password for SCRAM-SHA-512."""
        rounds = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, rounds, password.encode())
        self._client.alter_user_scram_credentials([change])[user].result(PATIENCE_S)

    def forget(self, user: str) -> None:
        """There is no such user any more."""
        change = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
        self._client.alter_user_scram_credentials([change])[user].result(PATIENCE_S)

    def present(self, store: Path) -> None:
        """The broker is who this says, for every connection that begins from now on."""
        if isinstance(self._kafka, SecuredKohort):
            self._kafka.present(store)
            return
        name, how = "listener.name.ssl.ssl.keystore.location", AlterConfigOpType.SET
        entry = ConfigEntry(name, str(store), incremental_operation=how)
        change = ConfigResource("broker", "1", incremental_configs=[entry])
        for done in self._client.incremental_alter_configs([change]).values():
            done.result(PATIENCE_S)
