"""From topic to topic: a batch that Spark repeats is written twice, and readers drop the doubles by three headers.

Run it with: python examples/spark_write.py (needs PySpark 4.2 and Java 17, or newer ones)
"""

import shutil
import tempfile

import kohort
import kohort.spark

# Where a row came from; the sink adds query and batch.
ORIGIN = "concat_ws('-', topic, partition, offset)"
HEADERS = f"array(struct('offset' as key, cast({ORIGIN} as binary) as value)) headers"


def header(name, column):
    return f"cast(element_at(filter(headers, header -> header.key = '{name}'), 1).value as string) {column}"


def copy(spark, address, checkpoint):
    orders = kohort.spark.read_stream(spark, "orders", startingOffsets="earliest", bootstrap_servers=address)
    louder = orders.selectExpr("key", "upper(cast(value as string)) value", HEADERS)
    copies = kohort.spark.write_stream(louder, "copies", kohort_batchHeaders=True, bootstrap_servers=address)
    copies.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


with kohort.Broker() as broker, tempfile.TemporaryDirectory() as checkpoint:
    address = broker.bootstrap_servers
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many("orders", [f"order {number}" for number in range(1000)]).result(30)
    spark = kohort.spark.session(master="local[2]")
    copy(spark, address, checkpoint)
    # As after a crash behind the write and before Spark's commit log: the batch is written again.
    shutil.rmtree(f"{checkpoint}/commits")
    copy(spark, address, checkpoint)

    copies = kohort.spark.read_topic(spark, "copies", includeHeaders=True, bootstrap_servers=address)
    marks = copies.selectExpr(header("kohort.query", "query"), header("kohort.batch", "batch"), header("offset", "row"))
    print(f"{marks.count()} rows, {marks.distinct().count()} of them different")
