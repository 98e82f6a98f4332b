"""Records as Arrow columns, summed up without a Python object per record.

Run it with: python examples/arrow_columns.py (needs pyarrow)
"""

import pyarrow as pa
import pyarrow.compute as pc

import kohort

with kohort.Broker() as broker:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(20_000):
            producer.send("payments", key=f"customer-{number % 4}", value=str(number % 50))

    batches = []
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([kohort.TopicPartition("payments", 0)])
        while sum(batch.num_rows for batch in batches) < 20_000:
            batches += consumer.poll_arrow(1.0, columns=["key", "value"])

payments = pa.Table.from_batches(batches)
amounts = pc.cast(pc.cast(payments["value"], pa.string()), pa.int64())
totals = payments.set_column(1, "amount", amounts).group_by("key").aggregate([("amount", "sum"), ("amount", "count")])
for row in totals.sort_by("key").to_pylist():
    print(f"{row['key'].decode()}: {row['amount_count']} payments, {row['amount_sum']} in all")
