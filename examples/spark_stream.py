"""A streaming query that is a member of a consumer group: no jar, and its lag is seen by every tool.

Run it with: python examples/spark_stream.py (needs PySpark 4.2 and Java 17, or newer ones)
"""

import tempfile

from pyspark.sql.functions import col

import kohort
import kohort.spark

with kohort.Broker() as broker, tempfile.TemporaryDirectory() as checkpoint:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("flights", key=f"carrier-{number % 5}", value=str(number))

    spark = kohort.spark.session(master="local[2]")
    flights = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "flights")
        .option("kafka.group.id", "departures")
        .option("startingOffsets", "earliest")
        .load()
    )
    departures = flights.groupBy(col("key").cast("string").alias("carrier")).count()
    query = departures.writeStream.format("memory").queryName("departures").outputMode("complete")
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.table("departures").orderBy("carrier").show()
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for row in admin.group_offsets("departures"):
            print(f"{row.topic}-{row.partition}: committed {row.committed} of {row.end_offset}")
    spark.stop()
