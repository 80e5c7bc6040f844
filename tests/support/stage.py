"""What one live test plays on: topics, controller name, checkpoint and settings file of its own on a shared Kafka.

Everything is read `read_committed` and to the end of the log at the time of the call, so a test waits for a condition
and never for a time.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions
from kafka.consumer.fetcher import ConsumerRecord

from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import KafkaLink
from streaming.kafka.topics import create
from streaming.settings import ControllerSettings, Settings, TopicNames, load
from streaming.settings.catalog import SettingsError
from streaming.transport.checkpoint import CLAIM, MANIFEST, Manifest, manifest_of
from streaming.transport.publishing import Checkpoint
from tests.support.processes import Running, command, until

RECORD_BYTES = 32 * 1024 * 1024

QUICK = """
[pulsar]
bundle_average_samples = 1

[pulsar.rounds]
length_s = 10
lateness_s = 5
warmup_rounds = 0
max_report_age_s = 30

[pulsar.avg_shedder]
low_hit_count = 3
min_unload_messages_per_s = 1
"""
"""Rounds of ten seconds of event time, decided from the first; the third hit fires."""


@dataclass(slots=True)
class Stage:
    """One controller's surroundings."""

    bootstrap: str
    name: str
    directory: Path
    topics: TopicNames = field(init=False)
    _producer: KafkaProducer | None = field(init=False, default=None)
    _followers: dict[str, "Follower"] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        defaults = asdict(TopicNames())
        self.topics = TopicNames(**{key: f"{name}.{self.name}" for key, name in defaults.items()})

    def create_topics(self) -> None:
        """Create the topics as `trimtab topics create` does."""
        create(
            KafkaLink(self.bootstrap),
            Settings(topics=self.topics, controller=ControllerSettings(max_record_bytes=RECORD_BYTES)),
            frozenset(self.topics.all),
            input_partitions=1,
        )

    def repartition(self, count: int) -> None:
        """Give the input topic, still empty, more partitions."""
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.create_partitions({self.topics.input: NewPartitions(count)})

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the settings made without another one."""
        return self.directory / "checkpoint"

    def settings(self, *, base: str = QUICK, file: str = "trimtab.toml", **overrides: object) -> Path:
        """Write a settings file: `base` and the sections of this stage; overrides are `section__name=value`."""
        own: dict[str, object] = {
            "controller__name": self.name,
            "controller__mode": "act",
            "input__url": f"kafka://{self.bootstrap}",
            "spark__checkpoint": str(self.checkpoint),
            "spark__master": "local[2]",
            "spark__trigger_interval_s": 0.4,
            "metrics__port": 0,
            **{f"topics__{key}": name for key, name in asdict(self.topics).items()},
            **overrides,
        }
        sections: dict[str, list[str]] = {}
        for path, value in own.items():
            section, name = path.split("__")
            sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
        text = "\n".join(f"\n[{section}]\n" + "\n".join(lines) for section, lines in sections.items())
        made = self.directory / file
        made.write_text(f"{base}\n{text}\n")
        remember_from_ever(made)
        return made

    def send(self, events: Iterable[bytes], *, to: str | None = None) -> None:
        """Produce events in order, keyed by their cluster, and wait until the broker has them."""
        for value in events:
            self.send_raw(cluster_of(value).encode(), value, to=to)
        self.flush()

    def send_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        to: str | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Produce one record as it is."""
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self.bootstrap, max_request_size=2 * RECORD_BYTES, linger_ms=5
            )
        self._producer.send(to or self.topics.input, key=key, value=value, headers=list(headers))

    def flush(self) -> None:
        """Wait until the broker has everything."""
        if self._producer is not None:
            self._producer.flush()

    def read(self, topic: str) -> list[ConsumerRecord]:
        """Every committed record of an output topic, in order, up to now, without the announcements of a take-over."""
        follower = self._followers.get(topic)
        if follower is None:
            follower = self._followers[topic] = Follower(self.bootstrap, topic)
        return [record for record in follower.read() if not is_leader(record.value)]

    def values(self, topic: str) -> list[bytes]:
        """The values of ``read``."""
        return [record.value for record in self.read(topic)]

    def events(self, topic: str, kind: str = "") -> list[dict[str, Any]]:
        """The events on a topic, of a type whose name ends so."""
        found = [json.loads(value) for value in self.values(topic)]
        return [event for event in found if event["type"].endswith(kind)]

    def data(self, topic: str, kind: str = "") -> list[dict[str, Any]]:
        """`data` of ``events``."""
        return [event["data"] for event in self.events(topic, kind)]

    def published(self) -> "Outputs":
        """Actions and round summaries, by cluster."""
        return Outputs.of([*self.values(self.topics.actions), *self.values(self.topics.audit)])

    def epochs(self, topic: str) -> list[int]:
        """The epoch in the header of each record."""
        return [int(dict(record.headers)[EPOCH_HEADER]) for record in self.read(topic)]

    def rejected(self) -> list[dict[str, object]]:
        """`data` of every dead letter."""
        return self.data(self.topics.dead_letter)

    def wait_for(self, topic: str, count: int, *, running: Sequence[Running] = ()) -> list[bytes]:
        """Wait for at least so many records on an output topic; returns the values."""
        return until(
            lambda: (found := self.values(topic)) and len(found) >= count and found,
            what=f"{count} records on {topic}",
            running=running,
        )

    def wait_for_outputs(self, wanted: "Outputs", *, running: Sequence[Running] = ()) -> None:
        """Wait until as many actions and summaries are out as are wanted."""
        if wanted.actions_count:
            self.wait_for(self.topics.actions, wanted.actions_count, running=running)
        self.wait_for(self.topics.audit, wanted.rounds_count, running=running)

    def close(self) -> None:
        """Close all connections; what is used again opens them anew."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()


@contextmanager
def staged(bootstrap: str, directory: Path) -> Iterator[Stage]:
    """A stage with a name of its own, with its topics."""
    made = Stage(bootstrap, f"t-{uuid4().hex[:8]}", directory)
    made.create_topics()
    try:
        yield made
    finally:
        made.close()


def remember_from_ever(config: Path, checkpoint: Path | None = None) -> None:
    """Begin a checkpoint on this machine that does not exist yet as if its memory reached back to the first event.

    Tests play events of the past, in which a controller without memory does nothing.
    """
    try:
        settings = load(file=config, flags={}, environ={}).settings
    except SettingsError:  # a test of what is refused
        return
    checkpoint = checkpoint or Path(settings.spark.checkpoint)
    if checkpoint.is_absolute() and checkpoint.parent.exists() and not checkpoint.exists():
        checkpoint.mkdir()
        (checkpoint / MANIFEST).write_bytes(msgspec.json.encode(manifest_of(settings)))


class Follower:
    """Keeps what it has read of a one-partition topic, so that looking again is one short fetch."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._at = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=None,
            enable_auto_commit=False,
        )
        self._consumer.assign([self._at])
        self._consumer.seek_to_beginning(self._at)
        self._records: list[ConsumerRecord] = []

    def read(self) -> list[ConsumerRecord]:
        """All records up to the end of the log at the time of the call."""
        end = self._consumer.end_offsets([self._at])[self._at]
        while self._consumer.position(self._at) < end:
            self._records += self._consumer.poll(timeout_ms=200).get(self._at, [])
        return list(self._records)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


@dataclass(frozen=True, slots=True)
class Outputs:
    """Actions and round summaries of each cluster, in order; what two runs are compared by."""

    actions: Mapping[str, list[bytes]]
    rounds: Mapping[str, list[bytes]]

    @classmethod
    def of(cls, values: Iterable[bytes]) -> "Outputs":
        """Sort values by kind and cluster; rejected ones are left out, for they carry their coordinates."""
        actions: dict[str, list[bytes]] = {}
        rounds: dict[str, list[bytes]] = {}
        for value in values:
            kind = json.loads(value)["type"]
            if kind == "trimtab.round.v1":
                rounds.setdefault(cluster_of(value), []).append(value)
            elif kind.startswith("trimtab.action."):
                actions.setdefault(cluster_of(value), []).append(value)
        return cls(actions, rounds)

    @property
    def actions_count(self) -> int:
        return sum(map(len, self.actions.values()))

    @property
    def rounds_count(self) -> int:
        return sum(map(len, self.rounds.values()))


def is_leader(value: bytes | None) -> bool:
    """Whether it only announces a new leader, which is no decision."""
    return b'"trimtab.leader.v1"' in (value or b"")


def cluster_of(value: bytes) -> str:
    """The cluster an event names."""
    return str(json.loads(value)["cluster"])


def replayed(config: Path, events: Iterable[bytes], *options: str) -> Outputs:
    """What `trimtab replay` makes of the same events with the same settings."""
    recording = config.with_suffix(".ndjson")
    recording.write_bytes(b"\n".join(events) + b"\n")
    done = command("replay", "--config", str(config), "--keep-open", *options, str(recording))
    return Outputs.of(done.stdout_bytes.splitlines())


def at(query_id: str | None = None, last_batch_id: int | None = None) -> Callable[[], Checkpoint]:
    """A function that reads a checkpoint of this query with this newest planned batch; without them a new one."""
    return lambda: Checkpoint(query_id=query_id, last_batch_id=last_batch_id)


def newest_start(checkpoint: Path) -> Path:
    """Where the newest start that counts keeps Spark's files."""
    cards = checkpoint.glob("start-*/trimtab.json")
    return max((manifest.parent for manifest in cards), key=lambda start: int(start.name.partition("-")[2]))


def read_manifest(start: Path) -> Manifest:
    """The manifest of a start."""
    return msgspec.json.decode((start / MANIFEST).read_bytes(), type=Manifest)


def flatten(checkpoint: Path) -> None:
    """Lay it out as trimtab did before each start had a directory."""
    start = newest_start(checkpoint)
    (start / CLAIM).unlink()
    for path in list(start.iterdir()):
        path.rename(checkpoint / path.name)
    start.rmdir()


BYTES = 256 * 1024 * 1024


@contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """A file system of its own that can be filled; None where we may not mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing can be written to the disk inside the block."""
    filling = disk / "filling"
    try:
        with filling.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1024 * 1024)):
                pass
        yield
    finally:
        filling.unlink()


def assert_replayed_alike(stage: Stage, config: Path) -> None:
    """What `trimtab record` keeps leads a replay to all that was published, dead letters included."""
    record, topics = config.with_suffix(".ndjson.gz"), stage.topics
    command("record", "--config", str(config), "--until-now", str(record))
    lines = command("replay", "--config", str(config), "--keep-open", str(record)).stdout_bytes.splitlines()
    shown = stage.values(topics.actions_dry_run)
    published = Outputs.of([*stage.values(topics.actions), *shown, *stage.values(topics.audit)])
    assert published.rounds == Outputs.of(lines).rounds
    assert shown or published.actions == Outputs.of(lines).actions, "the order of two topics is not known"
    outputs = (topics.actions, topics.actions_dry_run, topics.audit, topics.dead_letter)
    assert sorted(lines) == sorted(value for topic in outputs for value in stage.values(topic))
