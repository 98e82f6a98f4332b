"""The coordinator's journal as data: who took what from whom as a pandas frame, and each rebalance in Spark.

Run it with: python examples/journal_frames.py [BROKER GROUP] (needs pandas and pyspark; the broker a data directory)
"""

import sys
import tempfile

import pandas as pd

import kohort
import kohort.spark
from kohort import pipelines


def run(address, group):
    with kohort.Admin(bootstrap_servers=address) as admin:
        rows = pd.DataFrame(admin.group_history(group).events)
    moves = pd.json_normalize(rows.details[rows.event == "partitions_moved"].tolist())
    print(moves[["partitions", "trigger"]].to_string(index=False), flush=True)
    spark = kohort.spark.session()
    where = {"subscribe": "__group_journal", "kafka.bootstrap.servers": address}
    journal = pipelines.parse_journal(spark.read.format("kohort").options(**where).load())
    pipelines.rebalances(journal).orderBy("began").select("group_id", "why", "moved").show()


if len(sys.argv) == 3:
    run(*sys.argv[1:])
else:
    with tempfile.TemporaryDirectory() as place, kohort.Broker(data_dir=place) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 4)
        where = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        with kohort.Consumer("orders", **where) as one:
            while len(one.assignment()) < 4:
                one.poll(0.02)
            with kohort.Consumer("orders", **where) as two:
                while len(two.assignment()) < 2:
                    one.poll(0.02), two.poll(0.02)
        run(broker.bootstrap_servers, "billing")
