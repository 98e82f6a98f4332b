"""Each micro-batch is a folder of Parquet files with its number: one that is written again replaces itself.

Run it with: python examples/spark_batches.py [BROKER FOLDER]
or on a cluster: spark-submit --master spark://HOST:7077 examples/spark_batches.py BROKER FOLDER
"""

import sys
import tempfile
from pathlib import Path

import kohort
import kohort.spark


def run(address, folder):
    def write(frame, batch_id):
        frame.write.mode("overwrite").parquet(f"{folder}/orders/batch={batch_id}")
        print(f"batch {batch_id} is written", flush=True)

    spark = kohort.spark.session()
    orders = kohort.spark.read_stream(
        spark, "orders", startingOffsets="earliest", maxOffsetsPerTrigger=400, bootstrap_servers=address
    )
    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{folder}/orders")
    print(f"{rows.count()} rows, {rows.select('partition', 'offset').distinct().count()} different ones", flush=True)


if len(sys.argv) == 3:
    run(*sys.argv[1:])
else:
    with kohort.Broker() as broker, tempfile.TemporaryDirectory() as place:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("orders", [str(number) for number in range(1000)]).result(30)
        run(broker.bootstrap_servers, place)
        # As after a crash behind the write and before Spark's commit log: the last batch is written again.
        for part in Path(place, "checkpoint", "commits").glob("*2*"):
            part.unlink()
        run(broker.bootstrap_servers, place)
