"""A process of `SinkQuery`, forked for one step."""

from support.dialogues.spark_sink import serve

serve()
