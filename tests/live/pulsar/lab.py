"""A namespace of a test's own on the shared Pulsar, with real traffic on chosen bundles."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import uuid4

import httpx
import pulsar as pulsar_client

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from streaming.pulsar_admin import BundleName, HttpClient, PulsarAdmin
from streaming.pulsar_admin.bundles import topic_hash
from streaming.settings import PulsarTarget
from tests.live.driving import meanwhile, until

TENANT = "lab"
CLUSTER = "east-1"
"""The name in reports and decisions; Pulsar's own is another, on purpose."""
_PAUSE_S = 0.02


@dataclass(slots=True)
class Lab:
    """A namespace with ``bundles_count`` bundles."""

    pulsar: LocalPulsar | StandalonePulsar
    bundles_count: int = 4
    namespace: str = field(init=False)
    admin: PulsarAdmin = field(init=False)
    target: PulsarTarget = field(init=False)

    def __post_init__(self) -> None:
        self.target = PulsarTarget(admin_url=self.pulsar.admin_url)
        self.admin = PulsarAdmin(HttpClient(self.target), self.target)
        self.namespace = f"{TENANT}/n{uuid4().hex[:8]}"
        self.put(
            f"tenants/{TENANT}", {"allowedClusters": [self.pulsar.cluster], "adminRoles": []}, known=(409,)
        )
        self.put(f"namespaces/{self.namespace}", {"bundles": {"numBundles": self.bundles_count}})

    def bundles(self) -> list[BundleName]:
        """As they are now, ascending."""
        edges = self.admin.boundaries(self.namespace)
        return [BundleName(self.namespace, low, high) for low, high in pairwise(edges)]

    def owner(self, bundle: BundleName) -> str | None:
        """Broker that owns a bundle."""
        return next((each for each in self.pulsar.broker_ids if str(bundle) in self.owned(each)), None)

    def owned(self, broker: str) -> set[str]:
        """Bundles of a broker that lives."""
        return self.admin.owned_bundles(self.pulsar.cluster, broker)

    def topic_in(self, bundle: BundleName, *, number: int = 0) -> str:
        """Name of a topic that falls into a bundle; different numbers, different topics."""
        found = (
            topic
            for suffix in range(1_000_000)
            if bundle.holds(topic_hash(topic := f"persistent://{self.namespace}/t{number}-{suffix}"))
        )
        return next(found)

    def assigned(self, bundle: BundleName) -> str:
        """Have a bundle owned by somebody, with two topics in it: Pulsar cuts none with fewer. Returns the owner."""
        topics = [self.topic_in(bundle, number=number) for number in range(2)]
        for topic in topics:
            self.put(f"persistent/{topic.removeprefix('persistent://')}", None, known=(409,))
            self.admin.lookup(topic)
        return until(lambda: self.owner(bundle), what=f"an owner of {bundle}", running=[self.pulsar])

    @contextmanager
    def traffic(self, topics: Sequence[str], *, payload_bytes: int = 100) -> Iterator[None]:
        """Messages on each topic, some fifty a second, until the end of the block."""
        client = pulsar_client.Client(
            self.pulsar.service_url, logger=pulsar_client.ConsoleLogger(pulsar_client.LoggerLevel.Error)
        )
        producers = [client.create_producer(topic, block_if_queue_full=True) for topic in topics]

        def send(stop: threading.Event) -> None:
            while not stop.wait(_PAUSE_S):
                for producer in producers:
                    producer.send_async(b"x" * payload_bytes, None)

        try:
            with meanwhile(send):
                yield
        finally:
            client.close()

    def post(self, path: str, body: object = None) -> None:
        """A call that ``PulsarAdmin`` has no need for."""
        self._ask("POST", path, body)

    def delete(self, path: str) -> None:
        """See ``post``."""
        self._ask("DELETE", path, None)

    def put(self, path: str, body: object, *, known: tuple[int, ...] = ()) -> None:
        """See ``post``; ``known`` are further statuses that are well."""
        self._ask("PUT", path, body, known=known)

    def _ask(self, method: str, path: str, body: object, *, known: tuple[int, ...] = ()) -> None:
        url = f"{self.pulsar.admin_url.split(',')[0]}/admin/v2/{path}"
        answer = httpx.request(method, url, json=body, follow_redirects=True, timeout=20, trust_env=False)
        assert answer.is_success or answer.status_code in known, answer.text


def other_than(lab: Lab, *brokers: str) -> str:
    """A broker that is none of these."""
    return next(each for each in lab.pulsar.broker_ids if each not in brokers)
