"""The fixtures `kohort_broker` and `kohort_cluster`, as the tests of a user have them: with nothing to import."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import confluent_kafka
import pytest

import kohort
from kohort.testing import Cluster, pytest_plugin
from kohort.testing.broker import ClusterElsewhere
from support.ports import quiet_port

pytest_plugins = ["pytester"]


def test_pytest_finds_them_where_kohort_is_installed() -> None:
    """A user names no plugin; our own runs do, which keeps pytest from rewriting all of kohort."""
    assert [found.load() for found in entry_points(group="pytest11", name="kohort")] == [pytest_plugin]


def test_every_test_has_a_broker_of_its_own(kohort_broker: kohort.Broker) -> None:
    """Any Kafka client works against it."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    producer.produce("orders", b"one")
    assert producer.flush(10) == 0
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        ends = [row.end_offset for row in admin.describe_topics(["orders"])[0].partitions]
    assert ends == [1]


def test_nothing_is_left_of_the_test_before(kohort_broker: kohort.Broker) -> None:
    """Topics of another test are another broker's."""
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        assert not [topic for topic in admin.list_topics() if not topic.is_internal]


class TestWithConfig:
    """The fixture `kohort_broker_config` changes what the broker is told."""

    @pytest.fixture
    def kohort_broker_config(self) -> dict[str, object]:
        return {"num.partitions": 3}

    def test_config_is_in_force(self, kohort_broker: kohort.Broker) -> None:
        """Here: the partitions of a topic that is created by its first record."""
        with kohort.Producer(bootstrap_servers=kohort_broker.bootstrap_servers) as producer:
            producer.send("auto", b"x").result(10)
        with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
            assert len(admin.describe_topics(["auto"])[0].partitions) == 3


def test_every_test_has_a_cluster_of_its_own(kohort_cluster: Cluster) -> None:
    """The fixture `kohort_cluster`."""
    with kohort.Admin(bootstrap_servers=kohort_cluster.bootstrap_servers) as admin:
        admin.create_topic("orders", 3)
    assert [kohort_cluster.leader("orders", number) for number in range(3)] == [1, 2, 3]


class TestWithAnotherSize:
    """The fixture `kohort_cluster_size` changes how many brokers there are."""

    @pytest.fixture
    def kohort_cluster_size(self) -> int:
        return 2

    def test_size_is_in_force(self, kohort_cluster: Cluster) -> None:
        assert kohort_cluster.brokers == (1, 2)


@pytest.mark.parametrize("kohort_security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
class TestSecured:
    """`kohort_security` gives brokers TLS and a login, `kohort_client_options` what their clients need for both."""

    def test_client_with_the_options_is_let_in(
        self, kohort_broker: kohort.Broker, kohort_client_options: dict[str, str]
    ) -> None:
        """Any Kafka client."""
        options = {"bootstrap.servers": kohort_broker.bootstrap_servers, **kohort_client_options}
        producer = confluent_kafka.Producer(options)
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        with kohort.Consumer(options, auto_offset_reset="earliest") as consumer:
            consumer.assign([kohort.TopicPartition("orders", 0)])
            assert [record.value for record in consumer.poll(10.0)] == [b"one"]

    def test_client_without_them_is_not(self, kohort_broker: kohort.Broker) -> None:
        """It is told why."""
        with (
            kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin,
            pytest.raises(kohort.errors.BrokersUnreachableError),
        ):
            admin.list_topics()

    def test_cluster_is_secured_as_well(self, kohort_cluster: Cluster, kohort_client_options: dict[str, str]) -> None:
        """Each broker of it."""
        with kohort.Admin({"bootstrap.servers": kohort_cluster.bootstrap_servers, **kohort_client_options}) as admin:
            admin.create_topic("orders", 3)
            assert len(admin.describe_cluster().brokers) == 3


SUITE = """
import pytest
from kohort import Consumer, Producer

def read(servers, topic, group, count):
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found = []
        while len(found) < count:
            found += consumer.poll(1.0)
        return found

@pytest.mark.kohort(topics={"orders": 3})
def test_topics_of_the_mark(kohort):
    assert len(kohort.admin.describe_topics(["orders"])[0].partitions) == 3
    kohort.admin.alter_group_offsets("left-over", {("orders", 0): 1})

def test_nothing_is_left(kohort):
    assert [row for row in kohort.admin.list_topics() if not row.is_internal] == []
    assert kohort.admin.list_groups() == []

@pytest.mark.parametrize("way", ["a/b", "<script>"])
def test_names(kohort, kohort_topic, kohort_group, way):
    with Producer(bootstrap_servers=kohort.bootstrap_servers) as producer:
        producer.send(kohort_topic, value=way).result(10)
    assert read(kohort.bootstrap_servers, kohort_topic, kohort_group, 1)[0].value == way.encode()
    kohort.group(kohort_group).assert_committed({(kohort_topic, 0): 1})

def test_that_fails(kohort, kohort_topic, kohort_group):
    with Producer(bootstrap_servers=kohort.bootstrap_servers) as producer:
        producer.send(kohort_topic, value="1").result(10)
    read(kohort.bootstrap_servers, kohort_topic, kohort_group, 1)
    raise AssertionError("wanted")

def test_with_a_fault_that_strikes_nothing(kohort):
    kohort.faults.drop("OffsetDelete")

LEFT = []

def test_that_leaves_a_member(kohort, kohort_topic):
    consumer = Consumer(bootstrap_servers=kohort.bootstrap_servers, group_id="g", client_id="left behind")
    consumer.subscribe([kohort_topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    LEFT.append(consumer)

def test_behind_it(kohort):
    pass

def test_last():
    LEFT.pop().close()
"""


def run_suite(pytester: pytest.Pytester, *options: str, suite: str = SUITE) -> pytest.RunResult:
    """Run a user's suite in this process."""
    pytester.makepyfile(suite)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", *options)


def test_tests_share_a_broker_and_leave_nothing_to_one_another(pytester: pytest.Pytester) -> None:
    """The fixture `kohort` is reset for each test; a failing test shows why its groups rebalanced."""
    done = run_suite(pytester)
    done.assert_outcomes(passed=7, failed=1, errors=2)
    text = done.stdout.str()
    assert "kohort group why test_that_fails" in text and "took test_that_fails:0" in text
    assert "no request was struck by <no answer for OFFSET_DELETE, struck 0 times>" in text
    assert "members of an earlier test are in their groups: left behind of group g" in text


def test_the_same_tests_run_at_another_cluster(pytester: pytest.Pytester, kohort_broker: kohort.Broker) -> None:
    """`--kohort-bootstrap`: tests of faults skip by name, and no topic of others is deleted there."""
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("theirs", 1)
        chosen = "topics_of_the_mark or names or strikes_nothing"
        done = run_suite(pytester, "--kohort-bootstrap", kohort_broker.bootstrap_servers, "-k", chosen, "-rs")
        done.assert_outcomes(passed=3, skipped=1)
        assert "faults: this needs kohort's own broker in the test's process" in done.stdout.str()
        assert [row.name for row in admin.list_topics() if not row.is_internal] == ["theirs"]


@pytest.mark.large
def test_workers_share_a_broker_where_they_are_told_to(pytester: pytest.Pytester) -> None:
    """`--kohort-shared` under xdist: one address for all."""
    suite = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(kohort, kohort_topic, n):\n"
    pytester.makepyfile(suite + "    open(f'at-{n}', 'w').write(f'{kohort.bootstrap_servers} {kohort_topic}')\n")
    done = pytester.runpytest_subprocess("-n", "2", "--kohort-shared")
    done.assert_outcomes(passed=4)
    told = [(pytester.path / f"at-{number}").read_text().split() for number in range(4)]
    assert len({address for address, _ in told}) == 1
    assert len({topic for _, topic in told}) == 4


@pytest.mark.large
def test_the_suite_of_a_worker_passes(pytester: pytest.Pytester) -> None:
    """The example: a confluent-kafka worker with dead letters, refused, rebalanced, and its broker killed."""
    pytest.importorskip("confluent_kafka")
    suite = Path(__file__).resolve().parents[2] / "examples" / "worker_suite"
    for each in suite.glob("*.py"):
        (pytester.path / each.name).write_text(each.read_text())
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=4)


def test_failing_test_on_a_cluster_that_is_gone_has_no_timelines() -> None:
    """Its failure is what is shown, and not one of asking."""
    cluster = ClusterElsewhere(f"127.0.0.1:{quiet_port()}")
    assert list(pytest_plugin._timelines(cluster)) == []


def test_a_mark_with_another_word_is_told(pytester: pytest.Pytester) -> None:
    """A typing error is no topic that is not there."""
    done = run_suite(pytester, suite="import pytest\n@pytest.mark.kohort(topic={})\ndef test_it(kohort): pass\n")
    done.assert_outcomes(errors=1)
    assert "takes topics= and config=, not ['topic']" in done.stdout.str()


def test_a_broker_in_a_process_is_killed_and_comes_back_with_its_records(kohort_process: kohort.Broker) -> None:
    """The fixture `kohort_process`: a directory of the test's own."""
    with kohort.Producer(bootstrap_servers=kohort_process.bootstrap_servers) as producer:
        producer.send("orders", value="1").result(10)
    address = kohort_process.bootstrap_servers
    kohort_process.kill()
    kohort_process.start()
    with kohort.Admin(bootstrap_servers=address) as admin:
        assert [row.end_offset for row in admin.describe_topics(["orders"])[0].partitions] == [1]


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_that_is_started_again_is_where_its_clients_look_for_it(process: bool) -> None:
    """Each listener keeps the port that was free at its first start; a test kills a broker under a running client."""
    config = {"listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"}
    config |= {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}
    broker = kohort.Broker(process=process, config=config)
    told = []
    for _ in range(2):
        with broker:
            told.append((broker.bootstrap_servers, broker.bootstrap_of("OUTSIDE")))
            with kohort.Admin(bootstrap_servers=told[0][1]) as admin:
                assert all(topic.is_internal for topic in admin.list_topics())
    assert told[0] == told[1]
