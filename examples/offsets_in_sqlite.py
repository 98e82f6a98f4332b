"""Results and offsets in one SQLite transaction: a payment is booked once, even if the program is killed in between.

Run it with: python examples/offsets_in_sqlite.py [HOST:PORT FILE] (without them: a broker and a database of its own)
"""

import sqlite3
import sys

import kohort

CLAIM = "INSERT INTO done VALUES (?, ?) ON CONFLICT DO UPDATE SET next = excluded.next WHERE next < excluded.next"
BOOK = "INSERT INTO account VALUES (?, ?) ON CONFLICT DO UPDATE SET total = total + excluded.total"
address, file = sys.argv[1:] or ("", ":memory:")
own_broker = None if address else kohort.Broker().start()
if own_broker:
    address = own_broker.bootstrap_servers
    with kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(1000):
            producer.send("payments", key=f"customer-{number % 10}", value=str(number % 7))
db = sqlite3.connect(file, timeout=60)
db.execute("CREATE TABLE IF NOT EXISTS account (payer PRIMARY KEY, total)")
db.execute("CREATE TABLE IF NOT EXISTS done (part PRIMARY KEY, next)")


def go_on(consumer: kohort.Consumer, gained: list[kohort.TopicPartition]) -> None:
    done = dict(db.execute("SELECT part, next FROM done"))  # the database says where to begin, not the group
    for partition in gained:
        consumer.seek(partition, done.get(partition.partition, 0))


with kohort.Consumer(bootstrap_servers=address, group_id="accounting", enable_auto_commit=False) as consumer:
    consumer.subscribe(["payments"], on_assigned=go_on)
    while set(consumer.lag().values()) != {0}:
        with db:  # what happens in here happens altogether or not at all
            for record in consumer.poll(0.2):
                # Whoever claims it books it: the partition's last owner may still be at work.
                if db.execute(CLAIM, (record.partition, record.offset + 1)).rowcount:
                    db.execute(BOOK, (record.key, int(record.value)))
print(*db.execute("SELECT count(*), 'accounts hold', sum(total) FROM account").fetchone())
