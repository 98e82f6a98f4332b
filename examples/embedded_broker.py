"""A broker inside this program: in memory for a test, or on disk to outlive it.

Run it with: python examples/embedded_broker.py
"""

import tempfile

import kohort


def count_records(broker: kohort.Broker) -> int:
    """How many records the topic orders has."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (topic,) = admin.describe_topics(["orders"])
    return sum(partition.end_offset - partition.begin_offset for partition in topic.partitions)


with tempfile.TemporaryDirectory() as directory:
    with kohort.Broker(data_dir=directory, config={"num.partitions": 2}) as broker:
        print("a broker listens on", broker.bootstrap_servers)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("orders", key=f"customer-{number % 3}", value=f"order {number}")
        print("before the restart:", count_records(broker), "records")

    with kohort.Broker(data_dir=directory) as broker:
        print("after the restart:", count_records(broker), "records")
