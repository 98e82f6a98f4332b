"""A streaming table of what the topic orders brings, and a view of how many orders each customer has.

Nothing is registered: Spark finds format("kohort") by itself. spark-pipeline.yml says how to run it.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.getActiveSession()


@dp.table
def orders():
    address = os.environ["KOHORT_BOOTSTRAP"]
    options = {"kafka.bootstrap.servers": address, "subscribe": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("kohort").options(**options).load()


@dp.materialized_view
def orders_of_customers():
    return spark.read.table("orders").groupBy("key").count()
