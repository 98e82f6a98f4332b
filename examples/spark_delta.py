"""Each micro-batch is a transaction of a Delta table, known by query and number: one that comes again is left out.

Run it with: python examples/spark_delta.py (needs pip install 'pyspark==4.2.*'; Spark fetches Delta from Maven)
"""

import tempfile
from pathlib import Path

import kohort
import kohort.spark

DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def run(spark, address, folder):
    def write(frame, batch_id):
        once = {"txnAppId": "orders", "txnVersion": batch_id}
        frame.write.format("delta").mode("append").options(**once).save(f"{folder}/orders")

    settings = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 400, "bootstrap_servers": address}
    orders = kohort.spark.read_stream(spark, "orders", **settings)
    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.format("delta").load(f"{folder}/orders")
    print(f"{rows.count()} rows, {rows.select('partition', 'offset').distinct().count()} different ones", flush=True)


with kohort.Broker() as broker, tempfile.TemporaryDirectory() as place:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("orders", [str(number) for number in range(1000)]).result(30)
    session = kohort.spark.session(DELTA)
    run(session, broker.bootstrap_servers, place)
    # As after a crash behind the write and before Spark's commit log: the last batch is written again.
    for part in Path(place, "checkpoint", "commits").glob("*2*"):
        part.unlink()
    run(session, broker.bootstrap_servers, place)
