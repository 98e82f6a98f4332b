"""Limits of a transaction coordinator, under Kafka's names with underscores.

Source: Apache Kafka's transaction coordinator configuration. `transactional_id_limit`, `transaction_partition_limit`,
`concurrent_transactions_wait_ms` and `waiting_limit` are kohort's own.
"""

from __future__ import annotations

from typing import Final

from kohort.base.values import value

#: The level of the feature `transaction.version` from which each transaction has an epoch of its own: KIP-890 part 2.
EPOCH_BUMP_VERSION: Final = 2


@value
class TransactionSettings:
    """Limits and defaults of transactions; times in milliseconds.

    `transactional_id_expiration_ms`: time after which an id without a transaction is forgotten.
    `transaction_version`: the finalized level of the feature, by which the coordinator's own aborts go.
    `transactional_id_limit`: ids on the broker. `transaction_partition_limit`: partitions of one transaction.
    `concurrent_transactions_wait_ms`: time for which a request waits for the markers of the transaction before.
    `waiting_limit`: requests of one id that may wait so; others get CONCURRENT_TRANSACTIONS at once.
    `retry_ms`: time after which a deadline is tried again if its records could not be written.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_version: int = EPOCH_BUMP_VERSION
    transactional_id_limit: int = 100_000
    transaction_partition_limit: int = 10_000
    concurrent_transactions_wait_ms: int = 1_000
    waiting_limit: int = 16
    retry_ms: int = 1_000
