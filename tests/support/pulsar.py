"""A namespace of a test's own on a real Pulsar, with traffic on chosen bundles, and a ``Stage`` whose topics are there."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import pulsar as pulsar_client

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from policies.splitting.ranges import Bundle, position_of
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import close, connect
from streaming.pulsar.http import PASSING, AdminError, HttpClient
from streaming.settings import PulsarTarget, Settings, load
from streaming.systems import create_all
from tests.support.processes import Value, meanwhile, until
from tests.support.secure_pulsar import SUPER_USER, SecurePulsar
from tests.support.stage import Stage, is_leader

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

    def until(self, condition: Callable[[], Value], what: str) -> Value:
        """Wait for the first true value of a condition and return it; the brokers must not end meanwhile."""
        return until(condition, what=what, running=[self.pulsar])

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
                self.put(f"persistent/{topic.removeprefix('persistent://')}", known=(409,))
                self.admin.lookup(topic)
            return True

        self.until(partial(passing_errors_are_false, looked_up), f"topics in {bundle}")
        return self.until(lambda: self.owner(bundle), f"an owner of {bundle}")

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
        self.admin.call("POST", f"/admin/v2/{path}", body=body)

    def delete(self, path: str) -> None:
        """See ``post``."""
        self.admin.call("DELETE", f"/admin/v2/{path}")

    def put(self, path: str, body: object = None, *, known: tuple[int, ...] = ()) -> None:
        """See ``post``; ``known`` are further statuses that are accepted."""
        try:
            self.admin.call("PUT", f"/admin/v2/{path}", body=body)
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


def section_of(target: PulsarTarget) -> str:
    """The section of the settings that names the target as ``CLUSTER``."""
    names = ("admin_url", "ca_file", "token_file", "web_port")
    given = {name: value for name in names if (value := getattr(target, name)) is not None}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in given.items())
    return f'[targets."{CLUSTER}".pulsar]\n' + "".join(lines)


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


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the tests look at Kafka's records."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def messages(client: pulsar_client.Client, topic: str) -> list[Message]:
    """All there is on a topic (full name), in order."""
    reader = client.create_reader(topic, pulsar_client.MessageId.earliest)
    found = []
    try:
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=10_000)
            headers = tuple((name, value.encode()) for name, value in message.properties().items())
            found.append(Message(message.partition_key().encode(), message.data(), headers))
    finally:
        reader.close()
    return found


@dataclass(slots=True)
class PulsarStage(Stage):
    """A stage whose sides are on Pulsar as asked for; a side that is not is on the Kafka of ``bootstrap``."""

    lab: Lab = field(kw_only=True)
    on_pulsar: frozenset[str] = frozenset({"input", "output"})
    input_partitions: int = 1
    token_file: Path | None = None
    """The token of the role whose settings are made; None: the lab's own."""
    client: pulsar_client.Client = field(init=False)
    _producers: dict[str, pulsar_client.Producer] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        self.client = connected(self.lab.pulsar)

    def connect_anew(self) -> None:
        """Make a new client after an outage: the old one's producers may be lost."""
        close(self.client)
        self._producers.clear()
        self.client = connected(self.lab.pulsar)

    @classmethod
    def of(
        cls,
        lab: Lab,
        directory: Path,
        *,
        bootstrap: str = "",
        on_pulsar: Sequence[str] = ("input", "output"),
        input_partitions: int = 1,
    ) -> "PulsarStage":
        """A stage with all its topics made."""
        sides = frozenset(on_pulsar)
        name = f"p-{uuid4().hex[:8]}"
        made = cls(bootstrap, name, directory, lab=lab, on_pulsar=sides, input_partitions=input_partitions)
        made.create_topics()
        return made

    def create_topics(self, *, base: str | None = None) -> None:
        """Create the topics as `trimtab topics create` does; the checkpoint remembers the rounds' length of ``base`` then."""
        create_all(self.loaded(base=base), input_partitions=self.input_partitions)

    def loaded(self, *, base: str | None = None) -> Settings:
        """The stage's settings."""
        return load(file=self.settings(base=base, file="topics.toml"), flags={}, environ={}).settings

    def settings(self, *, base: str | None = None, file: str = "trimtab.toml", **overrides: object) -> Path:
        """Like ``Stage.settings``, with the addresses of both sides."""
        target = self.lab.target
        kafka = f"kafka://{self.bootstrap}"
        sides = {
            f"{side}__url": service_url_of(self.lab.pulsar) if side in self.on_pulsar else kafka
            for side in ("input", "output")
        }
        keywords = {} if base is None else {"base": base}
        made = Stage.settings(self, file=file, **keywords, **sides, **overrides)  # type: ignore[arg-type]
        token = self.token_file or target.token_file
        place = {"admin_url": target.admin_url, "namespace": self.lab.namespace}
        place |= {"ca_file": target.ca_file} if target.ca_file else {}
        place |= {"token_file": str(token)} if token else {}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in place.items())
        with made.open("a") as text:
            text.writelines(f"\n[{side}.pulsar]\n{lines}" for side in sorted(self.on_pulsar))
        return made

    def send_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        to: str | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Produce one message as it is; input and control are on the input's side."""
        if "input" not in self.on_pulsar:
            Stage.send_raw(self, key, value, to=to, headers=headers)
            return
        topic = to or self.topics.input
        if topic not in self._producers:
            self._producers[topic] = self.client.create_producer(self.full_name(topic))
        self._producers[topic].send_async(
            value,
            None,
            partition_key=None if key is None else key.decode(),
            properties={name: text.decode() for name, text in headers},
        )

    def flush(self) -> None:
        """Wait until the brokers have everything."""
        Stage.flush(self)
        for producer in self._producers.values():
            producer.flush()

    def read(self, topic: str) -> list[Message]:  # type: ignore[override]
        """Every message of an output topic, in order, up to now, without the announcements of a take-over."""
        if "output" not in self.on_pulsar:
            return Stage.read(self, topic)
        found = messages(self.client, self.full_name(topic))
        return [message for message in found if not is_leader(message.value)]

    def full_name(self, topic: str) -> str:
        """``persistent://…``."""
        return f"persistent://{self.lab.namespace}/{topic}"

    def close(self) -> None:
        """Close all connections."""
        Stage.close(self)
        close(self.client)
