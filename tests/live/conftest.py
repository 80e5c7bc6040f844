"""One Kafka, one Pulsar and one warm `trimtab` for the live tests; topics, names and checkpoints are each test's own.

Tests of a group run one after another in one process; other groups, and the tests that need no broker, run beside them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from deploy.local.kafka import LocalKafka
from deploy.local.pulsar import NEWEST_PULSAR_LOCK, OLDEST_PULSAR_LOCK, LocalPulsar
from streaming.executor.memory import Memory
from streaming.kafka.link import KafkaLink
from streaming.kafka.side import KafkaSide
from tests.support.hdfs import LocalHdfs
from tests.support.moving import CLUSTER, Moving, UsualFetches
from tests.support.permissions import USERS, Access, password_of
from tests.support.processes import Warm
from tests.support.secure_kafka import SecureKafka
from tests.support.secure_pulsar import SecurePulsar
from tests.support.stage import Stage, staged


@pytest.hookimpl(tryfirst=True)  # xdist looks at the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make groups for `pytest -n`: they begin first, the longest one before the others; the other tests fill the gaps."""
    here, order = Path(__file__).parent, {name: place for place, name in enumerate(GROUPS)}
    places = {}
    for item in items:
        if here in item.path.parents:
            group = group_of(item.path.relative_to(here))
            item.add_marker(pytest.mark.xdist_group(group))
            places[item] = order[group]
    items.sort(key=lambda item: places.get(item, len(order)))


def group_of(path: Path) -> str:
    """The group of a test's file: each has brokers of its own, which its tests share."""
    if path.stem in BY_FILE:
        return BY_FILE[path.stem]
    if path.parts[0] == "pulsar":
        return "pulsar"
    if path.stem.startswith("test_throttle_"):
        return "moves"
    return "controllers" if path.stem.startswith("test_run_") else "kafka"


GROUPS = ("controllers", "pulsar", "kafka", "alone", "replayed", "paced", "secured", "moves")
"""The longest first."""
BY_FILE = {
    "test_run_recording": "replayed",
    "test_permissions": "secured",
    "test_throttle_live": "paced",
    **dict.fromkeys(
        (
            "test_demo",
            "test_demo_screen",
            "test_extensible",
            "test_local",
            "test_permissions_pulsar",
            "test_run_crash",
            "test_run_damage",
            "test_run_standalone",
            "test_versions",
        ),
        "alone",
    ),
}
"""Tests that take long, start brokers or controllers of their own, or shorten the longest groups."""


_KEPT = {"brokerDeleteInactiveTopicsEnabled": "false"}
"""Tests leave topics idle that are not trimtab's own, so none is deleted for that."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """No test stops this Kafka: a test that has to stop one starts its own."""
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """Three brokers; each test has its own namespaces. A test that kills a broker starts it again."""
    with LocalPulsar(tmp_path_factory.mktemp("pulsar"), brokers=3, extra=_KEPT) as running:
        yield running


@pytest.fixture(
    params=["4.0", pytest.param("3.0", marks=pytest.mark.slow), pytest.param("4.2", marks=pytest.mark.slow)]
)
def any_pulsar(request: pytest.FixtureRequest) -> LocalPulsar:
    """A Pulsar of each version that is tested."""
    found = request.getfixturevalue(
        {"3.0": "oldest_pulsar", "4.0": "pulsar", "4.2": "newest_pulsar"}[request.param]
    )
    assert isinstance(found, LocalPulsar)
    return found


@pytest.fixture(scope="module")
def oldest_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """Like ``pulsar``, of the oldest version."""
    with LocalPulsar(tmp_path_factory.mktemp("oldest"), extra=_KEPT, lock=OLDEST_PULSAR_LOCK) as running:
        yield running


@pytest.fixture(scope="module")
def newest_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """Like ``pulsar``, of the newest version."""
    with LocalPulsar(tmp_path_factory.mktemp("newest"), extra=_KEPT, lock=NEWEST_PULSAR_LOCK) as running:
        yield running


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers, for reassignments; a test that stops one starts it again, and leaves no throttle behind."""
    with UsualFetches(tmp_path_factory.mktemp("brokers"), nodes=3) as running:
        yield running


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Its users are allowed nothing until a test allows it; each user belongs to one test."""
    passwords = {user: password_of(user) for user in USERS}
    with SecureKafka(tmp_path_factory.mktemp("secure"), users=passwords) as running:
        yield running


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePulsar]:
    """Each test has its own roles."""
    with SecurePulsar(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHdfs]:
    """Each test has its own directories."""
    with LocalHdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture
def access(secure: SecureKafka) -> Iterator[Access]:
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        yield Access(admin)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs commands in one JVM."""
    process = Warm(tmp_path_factory.mktemp("warm"))
    yield process
    process.close()


@pytest.fixture
def stage(kafka: LocalKafka, tmp_path: Path) -> Iterator[Stage]:
    """Topics with one input partition."""
    with staged(kafka.bootstrap, tmp_path) as made:
        yield made


@pytest.fixture
def moving(brokers: LocalKafka) -> Iterator[Moving]:
    """A topic with one partition, on brokers 1 and 2."""
    made = Moving(brokers, {0: (1, 2)})
    yield made
    made.close()


@pytest.fixture
def memory(brokers: LocalKafka, tmp_path: Path) -> Iterator[Memory]:
    """What an executor of throttles remembers, on a topic of its own."""
    with staged(brokers.bootstrap, tmp_path) as made:
        yield Memory(KafkaSide(KafkaLink(made.bootstrap)), made.topics.executor_kafka, CLUSTER)
