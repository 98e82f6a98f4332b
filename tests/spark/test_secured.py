"""Spark at brokers behind TLS and logins, Apache Kafka's and ours: what it takes, and what no plan shows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort
import kohort.spark
from support.peers.secured import PASSWORD, SHORT_S, USER, SecuredBroker, SecuredKafka, quoted
from support.peers.secured_kohort import SecuredKohort
from support.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop

APACHE = pytest.param("apache", marks=pytest.mark.apache)

#: How a name and a password are given.
LOGINS = {
    "librdkafka's": {"kafka.sasl.username": USER, "kafka.sasl.password": PASSWORD},
    "Java's": {
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f"username={quoted(USER)} password={quoted(PASSWORD)};"
    },
}


@pytest.fixture(scope="module", params=[APACHE, "kohort"])
def kafka(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    # A token's own end is shorter, and the broker sees to it.
    sessions = {"listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms": 3_600_000}
    with SecuredKohort(sessions) if request.param == "kohort" else SecuredKafka(sessions) as made:
        with kohort.Admin(bootstrap_servers=made.bootstrap("PLAINTEXT")) as admin:
            admin.create_topic("guarded", 2)
            admin.create_topic("logged", 2)
            admin.create_topic("token-in", 2)
            admin.create_topic("token-out", 2)
        yield made


@contextmanager
def event_log(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Spark's own event log of what happens meanwhile, as `spark.eventLog.enabled` writes it from a session's start."""
    jvm, context = spark._jvm, spark._jsc.sc()
    assert jvm is not None
    conf = context.conf().clone()
    for name in ("compress", "rolling.enabled"):
        conf.set(f"spark.eventLog.{name}", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(),
        jvm.scala.Option.empty(),
        jvm.java.net.URI(directory.as_uri()),
        conf,
        spark._jsc.hadoopConfiguration(),
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty(int(PATIENCE_SECONDS * 1000))
    finally:
        context.removeSparkListener(listener)
        listener.stop()


# What Spark logs is the same whichever broker is read.
@pytest.mark.parametrize("kafka", ["kohort"], indirect=True)
def test_event_log_has_no_secret(spark: SparkSession, kafka: SecuredBroker, tmp_path: Path) -> None:
    """Neither of a batch nor of a query, with a password and with a login configuration; the plans are in it."""
    for folder in ("events", "checkpoint"):
        (tmp_path / folder).mkdir()
    with event_log(spark, tmp_path / "events"):
        for login in LOGINS:
            rows = spark.range(2).selectExpr("cast(id as string) as value", "'logged' as topic")
            rows.write.format("kohort").options(**settings(kafka, login)).mode("append").save()
            frame = spark.read.format("kohort").options(**settings(kafka, login), subscribe="logged").load()
            assert frame.count() > 0
        stream = spark.readStream.format("kohort").options(**settings(kafka, "Java's"), subscribe="logged").load()
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        wrong = {**settings(kafka, "librdkafka's"), "kafka.sasl.password": "open-sesame"}
        with pytest.raises(Exception, match="does not let this client in"):
            spark.read.format("kohort").options(**wrong, subscribe="logged").load().collect()
    said = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in said
    assert "QueryProgressEvent" in said
    # In JSON a quotation mark has a backslash before it.
    assert "wonder, " not in said
    assert "open-sesame" not in said
    kept = "".join(path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert kept
    assert "wonder, " not in kept


def settings(kafka: SecuredBroker, login: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(kafka.certificates.ca),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        **LOGINS[login],
    }


def test_rows_are_written_and_read_and_a_query_is_a_member(
    spark: SparkSession, kafka: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the options of both worlds; the query's offsets are its group's."""
    rows = spark.range(20).selectExpr("cast(id as string) as value", "'guarded' as topic")
    rows.write.format("kohort").options(**settings(kafka, "Java's")).mode("append").save()

    frame = spark.read.format("kohort").options(**settings(kafka, "librdkafka's"), subscribe="guarded").load()
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(20))
    frame.explain("extended")
    assert PASSWORD not in capsys.readouterr().out

    stream = spark.readStream.format("kohort").options(**settings(kafka, "Java's"), subscribe="guarded")
    query = (
        stream.option("kafka.group.id", "guarded-query")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
        assert query.lastProgress is not None
        assert PASSWORD not in query.lastProgress.prettyJson
    finally:
        query.stop()
    with kohort.Consumer(bootstrap_servers=kafka.bootstrap("PLAINTEXT"), group_id="guarded-query") as group:
        committed = group.committed([kohort.TopicPartition("guarded", each) for each in range(2)])
    assert sum(offset or 0 for offset in committed.values()) == 20


def test_wrong_password_is_said_where_the_frame_is_used(spark: SparkSession, kafka: SecuredBroker) -> None:
    """In one sentence, which has no password."""
    wrong = {**settings(kafka, "librdkafka's"), "kafka.sasl.password": "open-sesame"}
    frame = spark.read.format("kohort").options(**wrong, subscribe="guarded").load()

    with pytest.raises(Exception, match="does not let this client in by SCRAM-SHA-512") as told:
        frame.collect()
    assert "open-sesame" not in str(told.value)


@pytest.fixture
def importing(spark: SparkSession) -> Iterator[None]:
    """Workers find what the tests are made of; a source that is registered anew takes the environment along."""
    environment = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), before]))
    kohort.spark.register(spark)
    yield
    environment.pop("PYTHONPATH")
    if before is not None:
        environment["PYTHONPATH"] = before
    kohort.spark.register(spark)


# Workers make their tokens by a function's name; those of that one are without a signature.
@pytest.mark.parametrize("kafka", [APACHE], indirect=True)
def test_query_outlives_its_tokens(spark: SparkSession, kafka: SecuredBroker, tmp_path: Path, importing: None) -> None:
    """From one topic into another: the driver, its reader and the tasks have tokens made anew, by a function's name."""
    options = {
        **settings(kafka, "librdkafka's"),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauth.token.provider": "support.peers.secured:short_token",
    }
    for name in LOGINS["librdkafka's"]:
        del options[name]
    stream = spark.readStream.format("kohort").options(**options, subscribe="token-in")
    rows = stream.option("kafka.group.id", "short-tokens").option("startingOffsets", "earliest").load()
    written = rows.selectExpr("value", "'token-out' as topic").writeStream.format("kohort").options(**options)
    query = written.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    plain = kafka.bootstrap("PLAINTEXT")
    try:
        with (
            kohort.Producer(bootstrap_servers=plain) as producer,
            kohort.Consumer(bootstrap_servers=plain, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([kohort.TopicPartition("token-out", number) for number in range(2)])
            sent: list[bytes] = []
            found: list[bytes | None] = []

            def pass_on() -> None:
                if len(found) == len(sent):
                    sent.append(str(len(sent)).encode())
                    producer.send("token-in", sent[-1]).result(PATIENCE_SECONDS)
                assert query.isActive, query.exception()
                found.extend(record.value for record in consumer.poll(0.2))

            until(lambda: found, what="the first row came", step=pass_on)
            began_s = time.monotonic()
            until(
                lambda: time.monotonic() > began_s + 3 * SHORT_S and found == sent,
                what=lambda: f"{len(found)} of {len(sent)} rows came",
                step=pass_on,
            )
        assert found == sent
        assert query.lastProgress is not None
        assert "eyJ" not in query.lastProgress.prettyJson
    finally:
        query.stop()
