"""The pytest fixtures of kohort: brokers in memory, ready in milliseconds, and topics and groups per test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kohort.testing.broker import Broker, ClusterElsewhere
    from kohort.testing.cluster import Cluster
    from kohort.testing.secured import Secured

#: Fixtures whose groups are told of when a test fails, each once.
_TOLD: Final = ("kohort", "kohort_broker", "kohort_cluster", "kohort_process")
#: Groups that a failing test tells of.
_MOST_GROUPS: Final = 10
#: Characters of a test's name that names of topics and groups have: Kafka allows 249, and a worker's may follow.
_LONGEST_NAME: Final = 200
#: The key of a worker's input for the address of the broker that all of them share.
_SHARED: Final = "kohort_bootstrap"
_SHARED_BROKER: pytest.StashKey[Broker] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add command line options to use a cluster outside of this process."""
    group = parser.getgroup("kohort", "brokers for tests")
    group.addoption(
        "--kohort-bootstrap",
        metavar="HOST:PORT",
        help="use this cluster, perhaps an Apache Kafka, for the fixture kohort; tests that need kohort's own skip",
    )
    group.addoption(
        "--kohort-shared",
        action="store_true",
        help="with xdist: one broker for all workers instead of one each; nothing is reset between tests then",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, and start the broker that workers share."""
    config.addinivalue_line(
        "markers",
        "kohort(topics={name: partitions}, config={...}): topics that the test begins with, and configs of its broker",
    )
    if config.getoption("--kohort-shared") and not hasattr(config, "workerinput"):
        from kohort.testing.broker import Broker

        broker = Broker().start()
        config.stash[_SHARED_BROKER] = broker
        config.add_cleanup(broker.stop)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the address of the shared broker to a worker of xdist."""
    broker = node.config.stash.get(_SHARED_BROKER, None)
    if broker is not None:
        node.workerinput[_SHARED] = broker.bootstrap_servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show the timeline of each group of the test's broker when the test fails."""
    report = yield
    if report.when == "call" and report.failed:
        for name in _TOLD:
            cluster = getattr(item, "funcargs", {}).get(name)
            if cluster is not None:
                for group, told in _timelines(cluster):
                    report.sections.append((f"kohort group why {group}", told))
                break
    return report


def _timelines(cluster: Any) -> Iterator[tuple[str, str]]:
    """Return the timeline of each group of a cluster; none if the cluster does not respond."""
    import kohort
    from kohort.testing.group import TestedGroup

    servers = cluster.bootstrap_servers
    try:
        with kohort.Admin(bootstrap_servers=servers, default_api_timeout_ms=2_000) as admin:
            for row in admin.list_groups()[:_MOST_GROUPS]:
                told = TestedGroup(admin, row.group_id, bootstrap_servers=servers).tell()
                if told:
                    yield row.group_id, told
    except (kohort.errors.KohortError, OSError):
        return


def _marked(request: pytest.FixtureRequest) -> tuple[dict[str, int], dict[str, object]]:
    """Return the topics and the configs of a test's marks, the nearest mark last."""
    topics: dict[str, int] = {}
    config: dict[str, object] = {}
    for mark in reversed(list(request.node.iter_markers("kohort"))):
        unknown = sorted(mark.kwargs.keys() - {"topics", "config"})
        if mark.args or unknown:
            raise pytest.UsageError(f"pytest.mark.kohort takes topics= and config=, not {unknown or mark.args}")
        topics.update(mark.kwargs.get("topics", {}))
        config.update(mark.kwargs.get("config", {}))
    return topics, config


@pytest.fixture
def kohort_broker_config() -> dict[str, object]:
    """Return broker configs for `kohort_broker`, by Kafka's names; override this fixture to change them.

    They are merged with `kohort.testing.broker.DEFAULTS`, and with those of `@pytest.mark.kohort(config=...)`.
    """
    return {}


@pytest.fixture
def kohort_security() -> str | None:
    """Return the security protocol of `kohort_broker` and `kohort_cluster`; override this fixture to change it.

    SSL, SASL_PLAINTEXT or SASL_SSL; `None`: no TLS and no login.
    """
    return None


@pytest.fixture
def kohort_secured(kohort_security: str | None, tmp_path_factory: pytest.TempPathFactory) -> Secured | None:
    """Make the certificates and the password that `kohort_security` needs."""
    if kohort_security is None:
        return None
    from kohort.testing.secured import secure

    return secure(kohort_security, tmp_path_factory.mktemp("kohort-tls"))


@pytest.fixture
def kohort_client_options(kohort_secured: Secured | None) -> dict[str, str]:
    """Return further options, by Kafka's names, that clients of the secured broker or cluster need."""
    return {} if kohort_secured is None else dict(kohort_secured.client_options)


@pytest.fixture
def kohort_broker(
    request: pytest.FixtureRequest,
    kohort_broker_config: dict[str, object],
    kohort_secured: Secured | None,
    kohort_client_options: dict[str, str],
) -> Iterator[Broker]:
    """Start a broker for this test alone; `kohort_broker.bootstrap_servers` is its address."""
    from kohort.testing.broker import Broker

    topics, config = _marked(request)
    secured = {} if kohort_secured is None else kohort_secured.config
    with Broker(config={**secured, **kohort_broker_config, **config}) as broker:
        _create(broker, topics, kohort_client_options)
        yield broker
        broker.faults.check()


@pytest.fixture
def kohort_cluster_size() -> int:
    """Return the number of brokers of `kohort_cluster`; override this fixture to change it."""
    return 3


@pytest.fixture
def kohort_cluster(
    request: pytest.FixtureRequest,
    kohort_cluster_size: int,
    kohort_broker_config: dict[str, object],
    kohort_secured: Secured | None,
    kohort_client_options: dict[str, str],
) -> Iterator[Cluster]:
    """Start a cluster for this test alone; its leaders and coordinators can be moved."""
    from kohort.testing.broker import DEFAULTS
    from kohort.testing.cluster import Cluster

    topics, config = _marked(request)
    secured = {} if kohort_secured is None else kohort_secured.config
    with Cluster(kohort_cluster_size, config={**DEFAULTS, **secured, **kohort_broker_config, **config}) as cluster:
        _create(cluster, topics, kohort_client_options)
        yield cluster


@pytest.fixture
def kohort_process(
    request: pytest.FixtureRequest, kohort_broker_config: dict[str, object], tmp_path: Path
) -> Iterator[Broker]:
    """Start a broker in a process of its own, with a directory: it can be killed, and started again."""
    from kohort.testing.broker import Broker

    topics, config = _marked(request)
    with Broker(data_dir=tmp_path / "kohort", process=True, config={**kohort_broker_config, **config}) as broker:
        _create(broker, topics)
        yield broker


@pytest.fixture(scope="session")
def kohort_session(request: pytest.FixtureRequest) -> Iterator[Broker | ClusterElsewhere]:
    """Start the broker that all tests of a run share, one per worker of xdist; `kohort` resets it.

    With `--kohort-bootstrap` the tests use that cluster, with `--kohort-shared` one broker for all workers.
    """
    from kohort.testing.broker import Broker, ClusterElsewhere

    config = request.config
    elsewhere = config.getoption("--kohort-bootstrap") or getattr(config, "workerinput", {}).get(_SHARED)
    if elsewhere:
        cluster = ClusterElsewhere(elsewhere)
        try:
            yield cluster
        finally:
            cluster.close()
        return
    if (shared := config.stash.get(_SHARED_BROKER, None)) is not None:
        yield shared
        return
    with Broker() as broker:
        yield broker


@pytest.fixture
def kohort(
    request: pytest.FixtureRequest, kohort_session: Broker | ClusterElsewhere
) -> Iterator[Broker | ClusterElsewhere]:
    """Return the session's broker as after its start: without topics, groups and faults of earlier tests.

    If members of an earlier test are left, the test fails with an error that names them. Topics of
    `@pytest.mark.kohort(topics=...)` exist; its `config` needs `kohort_broker`. A cluster of
    `--kohort-bootstrap` is not reset; only the test's own topics are deleted when the test ends.
    """
    from kohort.testing.broker import Broker

    topics, config = _marked(request)
    if config:
        raise pytest.UsageError("the session's broker takes no config of one test: use the fixture kohort_broker")
    is_own = isinstance(kohort_session, Broker) and not request.config.getoption("--kohort-shared")
    if isinstance(kohort_session, Broker) and is_own:
        kohort_session.reset()
    _create(kohort_session, topics)
    yield kohort_session
    if isinstance(kohort_session, Broker):
        kohort_session.faults.check()
    if topics and not is_own:
        kohort_session.admin.delete_topics(list(topics))


@pytest.fixture
def kohort_topic(request: pytest.FixtureRequest, kohort: Broker | ClusterElsewhere) -> Iterator[str]:
    """Create a topic of one partition for this test, yield its unique name, and delete it afterwards."""
    name = _name_of(request)
    _create(kohort, {name: 1})
    yield name
    kohort.admin.delete_topics([name])


@pytest.fixture
def kohort_group(request: pytest.FixtureRequest, kohort: Broker | ClusterElsewhere) -> Iterator[str]:
    """Return a unique group id for this test, which has to leave the group without members."""
    name = _name_of(request)
    yield name
    found = kohort.group(name).describe()
    if found is not None and found.members:
        left = ", ".join(member.client_id or member.member_id for member in found.members)
        pytest.fail(f"the test ends with members in its group {name}: {left}; close its consumers")
    if found is not None:
        kohort.admin.delete_groups([name])


@pytest.fixture(scope="session")
def kohort_spark() -> Iterator[SparkSession]:
    """Start Spark with kohort's source for all tests of a run; skip if PySpark or a JVM is missing."""
    pytest.importorskip("pyspark")
    import kohort.spark
    from kohort.errors import KohortError

    try:
        session = kohort.spark.session({"spark.ui.enabled": False}, master="local[2]")
    except KohortError as why:
        pytest.skip(str(why))
    yield session
    session.stop()


def _create(cluster: Any, topics: Mapping[str, int], options: Mapping[str, str] | None = None) -> None:
    """Create the topics that a test's marks name; `options`: client options for a login and TLS."""
    if not topics:
        return
    import kohort

    with kohort.Admin({"bootstrap.servers": cluster.bootstrap_servers, **(options or {})}) as admin:
        for name, partitions in topics.items():
            admin.create_topic(name, partitions)


def _name_of(request: pytest.FixtureRequest) -> str:
    """Build a unique name from the test's name, in characters that Kafka allows, and its worker's name."""
    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.")[:_LONGEST_NAME]
    return f"{plain}-{worker}" if worker else plain
