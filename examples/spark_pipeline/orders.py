"""A streaming table of the topic orders, a view of how many of them each customer has, and a topic with copies of them.

Nothing is registered: Spark finds format("kohort") by itself. spark-pipeline.yml says how to run it.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.getActiveSession()
address = os.environ["KOHORT_BOOTSTRAP"]
dp.create_sink("copies", "kohort", {"kafka.bootstrap.servers": address, "topic": "copied-orders"})


@dp.table
def orders():
    options = {"kafka.bootstrap.servers": address, "subscribe": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("kohort").options(**options).load()


@dp.materialized_view
def orders_of_customers():
    return spark.read.table("orders").groupBy("key").count()


@dp.append_flow(target="copies")
def copied_orders():
    return spark.readStream.table("orders").select("key", "value")
