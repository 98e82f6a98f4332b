"""Consume, transform, produce: each payment is booked once, in a topic, even if the program is killed in between.

Run it with: python examples/exactly_once.py [HOST:PORT] (without an address: at a broker of its own)
"""

import sys

import kohort

address = sys.argv[1] if sys.argv[1:] else ""
own_broker = None if address else kohort.Broker().start()
if own_broker:
    address = own_broker.bootstrap_servers
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many("payments", [str(number % 7) for number in range(1000)])

options = {"bootstrap_servers": address, "group_id": "booking"}
with (
    kohort.Consumer("payments", enable_auto_commit=False, auto_offset_reset="earliest", **options) as consumer,
    # Of producers with one name the latest writes: that of a program that hangs is fenced.
    kohort.Producer(bootstrap_servers=address, transactional_id="booking-1") as producer,
):
    while set(consumer.lag().values()) != {0}:
        records = consumer.poll(0.2)
        # What is sent in the block counts altogether or not at all, and the offsets with it.
        with producer.transaction() as transaction:
            for record in records:
                transaction.send("bookings", value=str(int(record.value) * 100))
            transaction.send_offsets(consumer)

with kohort.Consumer(bootstrap_servers=address, isolation_level="read_committed") as reader:
    reader.assign([kohort.TopicPartition("bookings", 0)])
    reader.seek_to_beginning()
    count = total = 0
    while not count or set(reader.lag().values()) != {0}:
        for record in reader.poll(0.2):
            count, total = count + 1, total + int(record.value)
print(count, "bookings of", total)
