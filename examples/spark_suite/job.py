"""A job on Spark: adds the orders of each customer up, as a member of a consumer group."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, sum
from pyspark.sql.streaming import StreamingQuery


def start(spark: SparkSession, servers: str, group: str, *, checkpoint: str, table: str) -> StreamingQuery:
    """Start the query; its sums stand in a table of the session."""
    orders = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .load()
    )
    customer, amount = col("key").cast("string").alias("customer"), col("value").cast("string").cast("long")
    sums = orders.groupBy(customer).agg(sum(amount).alias("amount"))
    writer = sums.writeStream.format("memory").queryName(table).outputMode("complete")
    return writer.option("checkpointLocation", checkpoint).start()
