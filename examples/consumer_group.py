"""Three members share a topic's partitions, and one of them leaves: every order is billed once.

Run it with: python examples/consumer_group.py [HOST:PORT] (without an address: against a broker of its own)
"""

import sys
import threading
from collections import Counter

import kohort

TOPIC, GROUP, ORDERS = "orders-of-today", "billing", 3000
billed = Counter(a=0, b=0, c=0)
is_done = threading.Event()


def bill(bootstrap: str, name: str, limit: int) -> None:
    """Be a member of the group until everything is billed, or until this member has done its share."""
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC], on_assigned=lambda _, gained: print(name, "gained", len(gained), "partitions"))
        while not is_done.is_set() and billed[name] < limit:
            billed[name] += len(consumer.poll(0.2))
            if billed.total() >= ORDERS:
                is_done.set()
    print(name, "leaves")


quick = {"group.consumer.heartbeat.interval.ms": 500, "group.consumer.min.heartbeat.interval.ms": 500}
own_broker = None if sys.argv[1:] else kohort.Broker(config=quick).start()
address = own_broker.bootstrap_servers if own_broker else sys.argv[1]
with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
    admin.create_topic(TOPIC, 6)
    members = [threading.Thread(target=bill, args=(address, name, 500 if name == "b" else ORDERS)) for name in "abc"]
    for member in members:
        member.start()
    for number in range(ORDERS):
        producer.send(TOPIC, key=f"customer-{number % 100}", value=f"order {number}")
    for member in members:
        member.join()
    print(f"{billed.total()} of {ORDERS} orders billed, lag {sum(row.lag or 0 for row in admin.group_offsets(GROUP))}")
