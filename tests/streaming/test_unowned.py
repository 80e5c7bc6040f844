"""Which bundles a collector says nobody owns, and what it asks for that."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from streaming.collector.reports import BundleLoad
from streaming.collector.unowned import Unowned
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import HttpClient
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, Broker, Brokers, answer_owner, http_brokers

LOWER, UPPER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
USED, CLIENTS, IDLE = BundleLoad(msgRateIn=1.0), BundleLoad(consumerCount=1), BundleLoad(topics=3)


@dataclass(slots=True)
class Cluster:
    """Two brokers: what they list and own, and the boundaries of the namespace; every half minute a sweep."""

    pool: ThreadPoolExecutor
    listed: dict[str, dict[str, BundleLoad]]
    owned: dict[str, set[str]] = field(default_factory=dict)
    """By broker, bundles that it owns besides those that it lists."""
    boundaries: tuple[str, ...] = ("0x00000000", "0x80000000", "0xffffffff")
    unclear: set[str] = field(default_factory=set)
    """Bundles whose owner nobody can tell: a question for it is answered with 500."""
    are_ranges_unclear: bool = False
    """Whether the ranges of the namespace cannot be read."""
    ranges_wait: threading.Event | None = None
    """What an answer with the ranges of the namespace waits for, at most 5 s."""
    within_s: float = 30.0
    now_ms: int = 0
    brokers: list[Broker] = field(default_factory=list)
    unowned: Unowned = field(init=False)

    def start(self, make: Brokers) -> None:
        """Make its brokers."""
        self.brokers = [make(self.answer) for _ in range(2)]
        target = PulsarTarget(admin_url=self.brokers[0].url)
        admin = PulsarAdmin(HttpClient(target), target)
        self.unowned = Unowned(admin, lambda: self.now_ms)

    @property
    def names(self) -> dict[str, str]:
        """Broker ids by short name."""
        return {
            name: each.url.removeprefix("http://")
            for name, each in zip(("a", "b"), self.brokers, strict=True)
        }

    def answer(self, asked: Asked) -> Answer:
        """As a broker."""
        if asked.path.endswith("/brokers/c"):
            return 200, {}, json.dumps(list(self.names.values())).encode()
        if not self.boundaries:
            return 404, {}, b'{"reason": "Namespace does not exist"}'
        if "/topicHashPositions" in asked.path:
            bundle = asked.path.removeprefix("/admin/v2/namespaces/").partition("/topicHashPositions")[0]
            owner = "".join(
                f"http://{id_}" for name, id_ in self.names.items() if bundle in self.owned.get(name, ())
            )
            return (500, {}, b"") if bundle in self.unclear else answer_owner(asked, owner)
        if self.ranges_wait is not None:
            self.ranges_wait.wait(5.0)
        if self.are_ranges_unclear:
            return 500, {}, b""
        return 200, {}, json.dumps({"boundaries": self.boundaries, "numBundles": 2}).encode()

    def sweep(self, after_s: float = 30.0) -> dict[str, int]:
        """What is found so much later."""
        self.now_ms += round(1000 * after_s)
        for name, id_ in self.names.items():
            self.unowned.note(id_, self.listed.get(name, {}), ())
        ids = list(self.names.values())
        return self.unowned.find(ids, self.pool, within_s=self.within_s)

    def asked_paths(self, part: str = "") -> list[str]:
        """What was asked since the last call, with ``part`` in it."""
        found = [each.path for broker in self.brokers for each in broker.asked if part in each.path]
        for broker in self.brokers:
            broker.asked.clear()
        return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with http_brokers() as make, ThreadPoolExecutor(4) as pool:
        found = Cluster(pool, {"a": {LOWER: USED}, "b": {UPPER: CLIENTS}})
        found.start(make)
        yield found


def test_while_every_used_bundle_is_listed_nothing_is_asked(cluster: Cluster):
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    cluster.listed = {"a": {LOWER: USED, UPPER: IDLE}}
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert cluster.asked_paths() == []


@pytest.mark.parametrize("load", [USED, CLIENTS], ids=["with traffic", "with clients"])
def test_a_used_bundle_without_an_owner_for_a_minute_is_named(cluster: Cluster, load: BundleLoad):
    cluster.listed["b"] = {UPPER: load}
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(4)] == [{}, {}, {UPPER: 60_000}, {UPPER: 60_000}]
    assert len(cluster.asked_paths(f"{UPPER}/topicHashPositions")) == 4, "once in a sweep"


def test_one_late_sweep_is_not_enough(cluster: Cluster):
    cluster.sweep()
    cluster.listed["b"] = {}
    assert cluster.sweep(after_s=500.0) == {}
    assert cluster.sweep(after_s=60.0) == {UPPER: 530_000}


@pytest.mark.parametrize(
    ("listed", "within_s", "is_asked_for"),
    [
        pytest.param({UPPER: IDLE}, 30.0, False, id="a bundle that was idle when last listed"),
        pytest.param({"nonsense": USED}, 30.0, False, id="a name that is no bundle's"),
        pytest.param({"pulsar/system/0x00000000_0xffffffff": USED}, 30.0, False, id="Pulsar's own"),
        pytest.param({UPPER: USED}, 0.0, True, id="one whose answers do not come in time"),
    ],
)
def test_what_is_listed_no_more_is_not_missed(
    cluster: Cluster, listed: dict[str, BundleLoad], within_s: float, *, is_asked_for: bool
):
    cluster.listed["b"], cluster.within_s = listed, within_s
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert is_asked_for or cluster.asked_paths() == []


def test_a_bundle_that_somebody_owns_without_listing_it_is_not_missed_from_then_on(cluster: Cluster):
    cluster.sweep()
    cluster.listed["b"], cluster.owned = {}, {"a": {UPPER}}
    cluster.sweep()
    cluster.owned = {}
    cluster.asked_paths()
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert cluster.asked_paths() == []


def test_it_is_over_when_a_broker_lists_the_bundle_again(cluster: Cluster):
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(3)][-1] == {UPPER: 60_000}
    cluster.listed["a"] = {LOWER: USED, UPPER: USED}
    assert cluster.sweep() == {}
    cluster.listed["a"] = {LOWER: USED}
    assert [cluster.sweep() for _ in range(3)] == [{}, {}, {UPPER: cluster.now_ms - 60_000}]


@pytest.mark.parametrize(
    "boundaries", [("0x00000000", "0x80000000", "0xc0000000", "0xffffffff"), ()], ids=["split", "deleted"]
)
def test_a_bundle_whose_range_is_gone_is_forgotten(cluster: Cluster, boundaries: tuple[str, ...]):
    cluster.sweep()
    cluster.listed["b"], cluster.boundaries = {}, boundaries
    assert [cluster.sweep() for _ in range(3)] == [{}] * 3
    cluster.asked_paths()
    assert cluster.sweep() == {}
    assert cluster.asked_paths() == []


def test_while_an_owner_is_not_known_what_was_found_stands_and_others_are_found(cluster: Cluster):
    cluster.sweep()
    cluster.listed, cluster.unclear = {}, {UPPER}
    assert [cluster.sweep() for _ in range(3)] == [{}, {}, {LOWER: 60_000}]
    cluster.unclear = set()
    assert [cluster.sweep().keys() for _ in range(3)] == [{LOWER}, {LOWER}, {LOWER, UPPER}]
    cluster.unclear = {UPPER}
    assert cluster.sweep().keys() == {LOWER, UPPER}
    cluster.unclear, cluster.owned = set(), {"a": {UPPER}}
    assert cluster.sweep() == {LOWER: 60_000}


def test_while_ranges_cannot_be_read_what_was_found_before_stands_and_nothing_is_added(cluster: Cluster):
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(3)][-1] == {UPPER: 60_000}
    cluster.are_ranges_unclear, cluster.listed = True, {}
    assert [cluster.sweep() for _ in range(4)] == [{UPPER: 60_000}] * 4
    cluster.are_ranges_unclear = False
    assert cluster.sweep().keys() == {LOWER, UPPER}


def test_ranges_that_do_not_come_in_time_change_nothing(cluster: Cluster):
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(2)] == [{}, {}]
    cluster.ranges_wait, cluster.within_s = threading.Event(), 0.5
    assert cluster.sweep() == {}
    cluster.ranges_wait.set()
    cluster.within_s = 30.0
    assert cluster.sweep() == {UPPER: 60_000}


def test_a_broker_of_the_list_whose_listing_is_not_known_yet_ends_no_sweep(cluster: Cluster):
    cluster.sweep()
    ids = [*cluster.names.values(), "host:1"]
    assert cluster.unowned.find(ids, cluster.pool, within_s=30.0) == {}


def many(count: int) -> list[str]:
    """Bundles of the namespace ``t/n``, as many."""
    step = 0x10000
    return [f"t/n/0x{step * at:08x}_0x{step * (at + 1):08x}" for at in range(count)]


def test_where_none_of_the_hundred_that_are_gone_longest_has_an_owner_all_others_count(cluster: Cluster):
    bundles = many(250)
    cluster.boundaries = tuple(f"0x{0x10000 * at:08x}" for at in range(251))
    first, later = bundles[150:], bundles[:150]
    cluster.listed = {"a": dict.fromkeys(bundles, USED)}
    cluster.sweep()
    cluster.listed = {"a": dict.fromkeys(later, USED)}
    cluster.sweep()
    cluster.listed = {}
    cluster.asked_paths()
    assert [len(cluster.sweep()) for _ in range(3)] == [0, 100, 250]
    asked = cluster.asked_paths("/topicHashPositions")
    assert {path.partition("/topic")[0].removeprefix("/admin/v2/namespaces/") for path in asked} == {*first}
    cluster.owned = {"b": {first[0]}}
    assert cluster.sweep().keys() == {*first[1:]}


def test_bundles_that_are_owned_but_listed_no_more_are_asked_for_a_hundred_in_a_sweep(cluster: Cluster):
    bundles = many(250)
    cluster.boundaries = tuple(f"0x{0x10000 * at:08x}" for at in range(251))
    cluster.listed, cluster.owned = {"a": dict.fromkeys(bundles, USED)}, {"b": {*bundles[:-1]}}
    cluster.sweep()
    cluster.listed = {}
    counts = []
    for _ in range(6):
        assert cluster.sweep().keys() <= {bundles[-1]}
        counts.append(len({path.partition("?")[0] for path in cluster.asked_paths("/topicHashPositions")}))
    assert counts == [100, 100, 50, 1, 1, 1]
    assert cluster.unowned.found.keys() == {bundles[-1]}
