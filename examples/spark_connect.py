"""The same calls through Spark Connect: this program has no JVM, and the server's Python needs kohort.

Run it with: python examples/spark_connect.py [sc://HOST] (needs pip install 'pyspark[connect]'; without an address it
starts a server of its own)
"""

import sys
import tempfile

import kohort
import kohort.spark

spark = kohort.spark.session(remote=sys.argv[1] if len(sys.argv) > 1 else "local[2]")
with kohort.Broker() as broker, tempfile.TemporaryDirectory() as checkpoint:
    address = broker.bootstrap_servers
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many("flights", [b"late"] * 1000, keys=[f"carrier-{number % 5}" for number in range(1000)])

    flights = kohort.spark.read_topic(spark, "flights", bootstrap_servers=address)
    counts = flights.groupBy("key").count().selectExpr("key", "string(count) AS value")
    kohort.spark.write_topic(counts, "departures", bootstrap_servers=address)
    departures = kohort.spark.read_stream(spark, "departures", startingOffsets="earliest", bootstrap_servers=address)
    shown = departures.selectExpr("string(key) AS carrier", "string(value) AS flights")
    query = shown.writeStream.format("memory").queryName("departures").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.table("departures").orderBy("carrier").show()
spark.stop()
