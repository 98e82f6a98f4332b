"""The data source `kohort`, which reads and writes batches and streams without a jar.

>>> spark.read.format("kohort").options(**{
...     "kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}).load()  # doctest: +SKIP
DataFrame[key: binary, value: binary, topic: string, partition: int, offset: bigint, ...]

Source: the options and columns of Spark's Kafka source and sink; P1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from kohort.spark.options import SourceOptions, for_batch, for_stream, parse_options, parse_sink_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kohort.spark.batch import KohortBatchReader
    from kohort.spark.sink import KohortBatchWriter, KohortStreamWriter
    from kohort.spark.stream import KohortStreamReader

_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


class KohortDataSource(DataSource):
    """Kafka topics as DataFrames; a streaming query with `kafka.group.id` is a member of that group."""

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format()`."""
        return "kohort"

    def schema(self) -> str:
        """Return Spark's Kafka columns, or those that the option `columns` asks for."""
        return ", ".join(f"{column} {_TYPES[column]}" for column in self._parsed().columns)

    def reader(self, schema: StructType) -> KohortBatchReader:
        """Return a batch reader over fixed offsets, which joins no group."""
        from kohort.spark.batch import KohortBatchReader

        return KohortBatchReader(for_batch(self._parsed()))

    def streamReader(self, schema: StructType) -> KohortStreamReader:
        """Return a reader of micro-batches; with a group id its partitions come from the group."""
        from kohort.spark.stream import KohortStreamReader, require_streaming_support

        require_streaming_support()
        return KohortStreamReader(for_stream(self._parsed()))

    def writer(self, schema: StructType, overwrite: bool) -> KohortBatchWriter:
        """Return a writer that appends a batch to topics."""
        from kohort.spark.sink import KohortBatchWriter

        return KohortBatchWriter(parse_sink_options(dict(self.options)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KohortStreamWriter:
        """Return a writer that appends a streaming query to topics.

        `overwrite` means complete mode: every micro-batch appends its whole result.
        """
        from kohort.spark.sink import KohortStreamWriter, require_stream_sink

        require_stream_sink()
        return KohortStreamWriter(parse_sink_options(dict(self.options)), schema)

    def _parsed(self) -> SourceOptions:
        return parse_options(dict(self.options))
