"""A namespace of a test's own on the shared Pulsar, with real traffic on chosen bundles."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import pulsar as pulsar_client

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from deploy.local.secure_pulsar import SUPER_USER, SecurePulsar
from policies.splitting.positions import position_of
from policies.splitting.ranges import Bundle
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import connect
from streaming.pulsar.http import PASSING, AdminError, HttpClient, Method
from streaming.settings import PulsarTarget
from tests.live.driving import meanwhile, until

TENANT = "lab"
CLUSTER = "east-1"
"""The name in reports and decisions; Pulsar's own is another, on purpose."""
_PAUSE_S = 0.02


@dataclass(slots=True)
class Lab:
    """A namespace with ``bundles_count`` bundles.

    Brokers read ``__change_events`` of each namespace. These readers come back by themselves after an unload, and may use up the hint
    for its destination. So that topic is always in the last bundle: tests of a destination take the others.
    """

    pulsar: LocalPulsar | StandalonePulsar
    bundles_count: int = 4
    namespace: str = field(init=False)
    admin: PulsarAdmin = field(init=False)
    target: PulsarTarget = field(init=False)

    def __post_init__(self) -> None:
        self.target = target_of(self.pulsar)
        self.admin = PulsarAdmin(HttpClient(self.target), self.target)
        self.namespace = self._new_name()
        self.put(
            f"tenants/{TENANT}", {"allowedClusters": [self.pulsar.cluster], "adminRoles": []}, known=(409,)
        )
        self.put(f"namespaces/{self.namespace}", {"bundles": {"numBundles": self.bundles_count}})

    def _new_name(self) -> str:
        """A name with which ``__change_events`` is in the last bundle."""
        low = 0xFFFFFFFF - 0xFFFFFFFF // self.bundles_count
        names = (f"{TENANT}/n{uuid4().hex[:8]}" for _ in range(100_000))
        return next(name for name in names if change_events_hash(name) > low)

    def bundles(self) -> list[Bundle]:
        """The bundles as they are now, ascending."""
        return self.admin.bundles(self.namespace)

    def owner(self, bundle: Bundle) -> str | None:
        """Broker that owns a bundle."""
        return self.admin.owner(bundle, self.admin.brokers(self.pulsar.cluster))

    def topic_in(self, bundle: Bundle, *, number: int = 0) -> str:
        """Name of a topic that falls into a bundle; different numbers, different topics."""
        found = (
            topic
            for suffix in range(1_000_000)
            if bundle.range.contains(
                position_of(topic := f"persistent://{self.namespace}/t{number}-{suffix}")
            )
        )
        return next(found)

    def assigned(self, bundle: Bundle) -> str:
        """Have a bundle owned by somebody, with two topics in it: Pulsar cuts none with fewer. Returns the owner."""
        topics = [self.topic_in(bundle, number=number) for number in range(2)]

        def looked_up() -> bool:
            for topic in topics:
                self.put(f"persistent/{topic.removeprefix('persistent://')}", None, known=(409,))
                self.admin.lookup(topic)
            return True

        until(partial(passing_errors_are_false, looked_up), what=f"topics in {bundle}", running=[self.pulsar])
        return until(lambda: self.owner(bundle), what=f"an owner of {bundle}", running=[self.pulsar])

    @contextmanager
    def traffic(self, topics: Sequence[str], *, payload_bytes: int = 100) -> Iterator[None]:
        """Messages on each topic, some fifty a second, until the end of the block."""
        client = connected(self.pulsar)
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
        """Make a call that ``PulsarAdmin`` has no need for."""
        self._ask("POST", path, body)

    def delete(self, path: str) -> None:
        """See ``post``."""
        self._ask("DELETE", path, None)

    def put(self, path: str, body: object, *, known: tuple[int, ...] = ()) -> None:
        """See ``post``; ``known`` are further statuses that are accepted."""
        self._ask("PUT", path, body, known=known)

    def _ask(self, method: Method, path: str, body: object, *, known: tuple[int, ...] = ()) -> None:
        try:
            self.admin.call(method, f"/admin/v2/{path}", body=body)
        except AdminError as error:
            if error.status not in known:
                raise


def change_events_hash(namespace: str) -> int:
    """The hash of a namespace's ``__change_events``, which ``PulsarAdmin.topics`` leaves out."""
    return position_of(f"persistent://{namespace}/__change_events")


def passing_errors_are_false(condition: Callable[[], bool]) -> bool:
    """For ``until``: a broker answers 500 to a lookup for as long as the bundle changes hands."""
    try:
        return condition()
    except AdminError as error:
        if error.failure not in PASSING:
            raise
        return False


def target_of(pulsar: LocalPulsar | StandalonePulsar) -> PulsarTarget:
    """The cluster as a target, with the rights to do everything."""
    if not isinstance(pulsar, SecurePulsar):
        return PulsarTarget(admin_url=pulsar.admin_url)
    return PulsarTarget(
        admin_url=pulsar.secure_admin_url,
        ca_file=str(pulsar.ca_file),
        token_file=str(pulsar.token_file(SUPER_USER)),
        web_port=pulsar.secure_port,
    )


def service_url_of(pulsar: LocalPulsar | StandalonePulsar) -> str:
    """The address of the brokers, encrypted if they offer that."""
    return pulsar.secure_service_url if isinstance(pulsar, SecurePulsar) else pulsar.service_url


def connected(pulsar: LocalPulsar | StandalonePulsar) -> pulsar_client.Client:
    """A client that says little and may do everything."""
    target = target_of(pulsar)
    return connect(service_url_of(pulsar), token_file=target.token_file, ca_file=target.ca_file)


def other_than(lab: Lab, *brokers: str) -> str:
    """A broker that is none of these."""
    return next(each for each in lab.pulsar.broker_ids if each not in brokers)
