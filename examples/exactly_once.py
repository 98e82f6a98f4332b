"""Orders become invoices, each exactly once, though the function fails in between and another process takes over.

Run it with: python examples/exactly_once.py [HOST:PORT] (without it: a broker of its own)
"""

import sys

import kohort

ORDERS = 1000
READER = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "enable_auto_commit": False}
own_broker = None if sys.argv[1:] else kohort.Broker().start()
address = own_broker.bootstrap_servers if own_broker else sys.argv[1]
with kohort.Producer(bootstrap_servers=address) as feed:
    feed.send_many("orders", [str(number) for number in range(ORDERS)]).result(10)
failing = [200, 600]


def invoice(records, transaction):
    for record in records:
        transaction.send("invoices", value=b"invoice of " + record.value)
    if failing and records[-1].offset >= failing[0]:
        raise RuntimeError(f"failed at order {failing.pop(0)}")


for _ in range(3):  # as a supervisor starts a process that has failed
    with (
        kohort.Consumer("orders", bootstrap_servers=address, group_id="invoicing", **READER) as consumer,
        kohort.Producer(bootstrap_servers=address, transactional_id="invoicing-1") as producer,
    ):
        try:
            kohort.transform(consumer, producer, invoice, max_records=100, until=lambda: 0 in consumer.lag().values())
        except RuntimeError as why:
            print(why)
with kohort.Consumer("invoices", bootstrap_servers=address, group_id="printing", **READER) as consumer:
    invoices = [record.value for record in iter(lambda: consumer.poll_one(2.0), None)]
print(f"{len(invoices)} invoices of {len(set(invoices))} orders")
