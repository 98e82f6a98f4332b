"""The journal's rows about transactions, as dialogues: each step, counted where it repeats, and each refusal."""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.transactions.states import LAST_EPOCH
from kohort.journal.ring import Journal
from support.dialogues.transaction_dialogue import T0, T1, TransactionDialogue


def test_each_step_of_a_transaction_has_a_row_and_repeated_ones_a_count(tx: TransactionDialogue) -> None:
    producer = tx.init().producer()
    for _ in range(3):
        tx.add(producer, T0)
        tx.add(producer, T1)
        producer = tx.end(producer).producer()
        tx.write_markers()

    name = str(producer[0])
    assert tx.told() == [
        f"transaction_began {name} x3",
        f"transaction_decided {name} result=commit x3",
        f"transaction_completed {name} x3",
    ]


def test_end_that_its_producer_did_not_ask_for_says_why_and_where(tx: TransactionDialogue) -> None:
    producer = tx.init().producer()
    tx.add(producer, T0, T1)
    began_ms = tx.now_ms
    tx.advance(60_001)
    tx.write_markers()
    producer = tx.init().producer()
    tx.add(producer, T1)
    tx.init()

    name = str(producer[0])
    ends = [row for row in tx.told() if row.startswith("transaction_decided")]
    assert ends == [
        f"transaction_decided {name} result=abort why=transaction timeout began_ms={began_ms} partitions=t-0 t-1 x1",
        f"transaction_decided {name} result=abort why=new producer began_ms={tx.now_ms} partitions=t-1 x1",
    ]


def test_refused_producer_has_a_row_with_the_error(tx: TransactionDialogue) -> None:
    tx.init()
    zombie = tx.init(principal="Token:t billing").producer()
    tx.init()
    for _ in range(2):
        tx.end(zombie, principal="User:ann").refused()
    tx.add(zombie).refused()

    name = str(zombie[0])
    assert tx.told() == [
        f"producer_initialized {name} epoch=1 timeout_ms=60000 principal=Token:t label=billing x1",
        f"producer_initialized {name} epoch=2 timeout_ms=60000 x1",
        f"refused {name} api=EndTxn error=PRODUCER_FENCED principal=User:ann x2",
        f"refused {name} api=AddPartitionsToTxn error=PRODUCER_FENCED x1",
    ]


def test_completed_transaction_belongs_to_the_producer_whose_epochs_it_used_up(tx: TransactionDialogue) -> None:
    producer_id, _ = tx.init().producer()
    tx.shard.apply(replace(tx.stored(), producer_epoch=LAST_EPOCH))
    producer = (producer_id, LAST_EPOCH)
    tx.add(producer)
    after = tx.end(producer).producer()
    tx.write_markers()

    assert after[0] != producer[0]
    assert tx.told()[-1] == f"transaction_completed {producer[0]} x1"


def test_forgotten_id_has_a_last_row(tx: TransactionDialogue) -> None:
    tx.init()
    tx.advance(tx.settings.transactional_id_expiration_ms + 1)

    assert tx.told()[-1] == "transactional_id_forgotten  x1"


def test_journal_that_is_off_gets_no_rows(tx: TransactionDialogue) -> None:
    tx.journal = Journal(limit=0)
    tx.add(tx.init().producer())

    assert tx.told() == []
