"""Which bundles a collector says nobody owns, and what it asks for that."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import unquote

import pytest

from streaming.collector.reports import BundleLoad
from streaming.collector.unowned import Unowned
from streaming.pulsar.admin import HttpClient, PulsarAdmin
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, Broker, http_brokers

LOWER, UPPER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
USED, CLIENTS, IDLE = BundleLoad(msgRateIn=1.0), BundleLoad(consumerCount=1), BundleLoad(topics=3)


@dataclass(slots=True)
class Cluster:
    """Two brokers: what they list and own, and the boundaries of the namespace; every half minute a sweep."""

    pool: ThreadPoolExecutor
    listed: dict[str, dict[str, BundleLoad]]
    owned: dict[str, set[str]] = field(default_factory=dict)
    boundaries: tuple[str, ...] = ("0x00000000", "0x80000000", "0xffffffff")
    status: int = 200
    now_ms: int = 0
    brokers: list[Broker] = field(default_factory=list)
    unowned: Unowned = field(init=False)

    def start(self, make: Callable[[Callable[[Asked], Answer]], Broker]) -> None:
        """Make its brokers."""
        self.brokers = [make(self.answer) for _ in range(2)]
        target = PulsarTarget(admin_url=self.brokers[0].url)
        admin = PulsarAdmin(HttpClient(target), target)
        self.unowned = Unowned(admin, "c", lambda: self.now_ms)

    @property
    def names(self) -> dict[str, str]:
        """Broker ids by short name."""
        return {
            name: each.url.removeprefix("http://")
            for name, each in zip(("a", "b"), self.brokers, strict=True)
        }

    def answer(self, asked: Asked) -> Answer:
        """As a broker."""
        if asked.path.endswith("/ownedNamespaces"):
            (name,) = [name for name, id_ in self.names.items() if id_ in unquote(asked.path)]
            return self.status, {}, json.dumps({each: {} for each in self.owned.get(name, ())}).encode()
        if not self.boundaries:
            return 404, {}, b'{"reason": "Namespace does not exist"}'
        return 200, {}, json.dumps({"boundaries": self.boundaries, "numBundles": 2}).encode()

    def sweep(self, after_s: float = 30.0) -> dict[str, int]:
        """What is found so much later."""
        self.now_ms += round(1000 * after_s)
        for name, id_ in self.names.items():
            self.unowned.note(id_, self.listed.get(name, {}), ())
        ids = list(self.names.values())
        return self.unowned.find(ids, self.pool, asked=ids)

    def asked_paths(self) -> list[str]:
        """What was asked since the last call."""
        found = [each.path for broker in self.brokers for each in broker.asked]
        for broker in self.brokers:
            broker.asked.clear()
        return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with http_brokers() as make, ThreadPoolExecutor(4) as pool:
        found = Cluster(pool, {"a": {LOWER: USED}, "b": {UPPER: CLIENTS}})
        found.start(make)
        yield found


def test_while_every_used_bundle_is_listed_no_broker_is_asked(cluster: Cluster) -> None:
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    cluster.listed = {"a": {LOWER: USED, UPPER: IDLE}}
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert cluster.asked_paths() == []


@pytest.mark.parametrize("load", [USED, CLIENTS], ids=["with traffic", "with clients"])
def test_a_used_bundle_without_an_owner_for_a_minute_is_named_with_the_time_since_when(
    cluster: Cluster, load: BundleLoad
) -> None:
    cluster.listed["b"] = {UPPER: load}
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(4)] == [{}, {}, {UPPER: 60_000}, {UPPER: 60_000}]
    asked = [path for path in cluster.asked_paths() if path.endswith("ownedNamespaces")]
    assert len(asked) == 2 * 4, "each broker once in a sweep"


def test_one_late_sweep_is_not_enough(cluster: Cluster) -> None:
    cluster.sweep()
    cluster.listed["b"] = {}
    assert cluster.sweep(after_s=500.0) == {}
    assert cluster.sweep(after_s=60.0) == {UPPER: 530_000}


def test_a_bundle_that_was_idle_when_last_listed_is_not_missed(cluster: Cluster) -> None:
    cluster.listed["b"] = {UPPER: IDLE}
    cluster.sweep()
    cluster.listed["b"] = {}
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert cluster.asked_paths() == []


def test_a_bundle_that_somebody_owns_without_listing_it_is_not_missed_from_then_on(cluster: Cluster) -> None:
    cluster.sweep()
    cluster.listed["b"], cluster.owned = {}, {"a": {UPPER}}
    cluster.sweep()
    cluster.owned = {}
    cluster.asked_paths()
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    assert cluster.asked_paths() == []


def test_it_is_over_when_a_broker_lists_the_bundle_again(cluster: Cluster) -> None:
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
def test_a_bundle_whose_range_is_gone_is_forgotten(cluster: Cluster, boundaries: tuple[str, ...]) -> None:
    cluster.sweep()
    cluster.listed["b"], cluster.boundaries = {}, boundaries
    assert [cluster.sweep() for _ in range(3)] == [{}] * 3
    cluster.asked_paths()
    assert cluster.sweep() == {}
    assert cluster.asked_paths() == []


def test_while_a_broker_does_not_say_what_it_owns_what_was_found_before_stands(cluster: Cluster) -> None:
    cluster.sweep()
    cluster.listed["b"], cluster.status = {}, 500
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
    cluster.status = 200
    assert [cluster.sweep() for _ in range(3)] == [{}, {}, {UPPER: cluster.now_ms - 60_000}]
    cluster.status = 500
    assert cluster.sweep().keys() == {UPPER}


def test_pulsars_own_bundles_are_not_missed(cluster: Cluster) -> None:
    cluster.listed["a"] = {"pulsar/system/0x00000000_0xffffffff": USED}
    cluster.listed["b"] = {}
    cluster.sweep()
    cluster.listed["a"] = {}
    assert [cluster.sweep() for _ in range(4)] == [{}] * 4
