"""A cluster's admin API as programs use it: reads the cluster, reads and sets its throttle, and raises our own errors.

What could not be read is absent and named, never 0. If a broker does not answer, only its own numbers are missing.
Sources: KIP-455 (running reassignments), KIP-113 and KIP-827 (log directories and their space).

Kafka accepts a misspelt key and a rate of 0, and reports errors in its answer instead of raising: so a rate below 1 is
refused here, every answer is checked, and everything is read back. Lists and rates that are right already are not set
again. Config keys: ``leader.replication.throttled.rate``, ``…replicas`` and the same for ``follower``.

A rate may also be the default of all brokers (``kafka-configs --entity-default``). A broker's own rate overrides it, and
the default is never changed here. Kafka ignores a rate in ``server.properties``. Source: ``BrokerConfigHandler``.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import LARGEST_NUMBER, NO_LEADER
from policies.throttle.roles import ROLES, BrokerRole, Role
from streaming.kafka.client import ClusterError, Unanswered, connected, describe_error
from streaming.kafka.link import KafkaLink
from streaming.process.deadline import poll
from streaming.settings import KafkaTarget

_METADATA_AGE_MAX_MS = 5_000
"""An open client cannot reach a broker that came back before it reads the metadata again: with kafka-python's default of 5 minutes
it could not for 288 s, with this for 3 s. The metadata that it reads are the list of brokers."""
_ALWAYS_THERE = {ConfigResourceType.TOPIC: "cleanup.policy", ConfigResourceType.BROKER: "node.id"}
"""A key that every answer has. If it is missing, the request was refused; the client raises no error then."""
_OWN = {
    ConfigResourceType.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigResourceType.BROKER: "DYNAMIC_BROKER_CONFIG",
}
"""The source of a setting that is the topic's or broker's own."""
_SEEN_TIMEOUT_S = 10.0
"""How long a broker may take to show a change after it acknowledged it; some ten milliseconds are normal."""
_POLL_S = 0.05

Partition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Where a partition is."""

    replicas: tuple[int, ...]
    """While the partition moves, the old and the new ones."""
    leader: int
    """-1: none."""
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMove:
    """A reassignment that Kafka carries out."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the move, in order."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """Sizes of logs and free space, as the brokers report them."""

    sizes_bytes: Mapping[Partition, Mapping[int, int]]
    """By partition and broker."""
    usable_bytes: Mapping[int, int]
    """Free space of all log directories of a broker; absent if one directory's is not reported."""
    failed: Mapping[int, str]
    """Brokers that did not answer, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Lists by topic and rates by role; only what is set."""

    lists: ThrottledLists = field(default_factory=ThrottledLists)
    rates_bytes_per_s: Mapping[BrokerRole, int] = field(default_factory=dict)
    """The brokers' own rates."""
    defaults_bytes_per_s: Mapping[Role, int] = field(default_factory=dict)
    """The rate of all brokers that have none of their own."""


class _Value(NamedTuple):
    """One setting."""

    own: str | None
    """The topic's or broker's own value."""
    default: str | None = None
    """The default of all brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting and the value it shall have; None: it shall not be set."""

    kind: ConfigResourceType
    name: str
    key: str
    value: str | None

    def __str__(self) -> str:
        what = f"{self.kind.name.lower()} {self.name}: {self.key}"
        return f"{what} removed" if self.value is None else f"{what} = {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlesFound:
    """What is set, and the brokers that could not be asked."""

    throttle: Throttle
    failed: Mapping[int, str]


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Unanswered(str(error)) from error


class KafkaCluster:
    """A connection to a cluster: the one reader of its state for collector, executor and planner.

    Methods raise ``ClusterError``; a request that fails is ``Unanswered``.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    @_explain_errors()
    def require_answer(self) -> None:
        """Raise ``Unanswered`` if the cluster does not answer."""
        self._admin.describe_cluster()

    @_explain_errors()
    def brokers(self) -> dict[int, str]:
        """Advertised hosts of the brokers that are registered and not fenced, by id."""
        return {
            broker["broker_id"]: broker["host"]
            for broker in self._admin.describe_cluster()["brokers"]
            if not broker.get("is_fenced", False)
        }

    @_explain_errors()
    def partitions(self, topics: Iterable[str]) -> dict[Partition, PartitionState]:
        """All partitions of the topics that exist. Raises ``ClusterError`` for a topic that is hidden from us."""
        described = self._admin.describe_topics(sorted(set(topics))) if topics else []
        hidden = [
            topic["name"] for topic in described if topic["error_code"] == TopicAuthorizationFailedError.errno
        ]
        if hidden:
            raise ClusterError(
                f"topic {hidden[0]} cannot be described (one of {len(hidden)}): is DESCRIBE on it allowed?"
            )
        return {
            (topic["name"], entry["partition_index"]): PartitionState(
                replicas=tuple(entry["replica_nodes"]),
                leader=entry["leader_id"],
                in_sync=tuple(entry["isr_nodes"]),
            )
            for topic in described
            if topic["error_code"] == 0
            for entry in topic["partitions"]
        }

    @_explain_errors()
    def reassignments(self) -> dict[Partition, RunningMove]:
        """All running moves of the cluster; empty when nothing moves. Raises ``ClusterError`` if we may not read them."""
        try:
            moves = self._admin.list_partition_reassignments()
        except ClusterAuthorizationFailedError as error:
            raise ClusterError(
                "the running reassignments cannot be read: is DESCRIBE on the cluster allowed?"
            ) from error
        return {
            (where.topic, where.partition): RunningMove(
                replicas=tuple(entry["replicas"]),
                adding=tuple(entry["adding_replicas"]),
                removing=tuple(entry["removing_replicas"]),
            )
            for where, entry in moves.items()
        }

    @_explain_errors()
    def log_sizes(self, partitions: Iterable[Partition], brokers: Iterable[int]) -> LogSizes:
        """Sizes of the partitions on each of the brokers, which are asked one by one, so that a dead one fails alone."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(set(partitions)):
            wanted.setdefault(topic, []).append(partition)
        sizes: dict[Partition, dict[int, int]] = {}
        usable, failed = {}, {}
        for broker in sorted(set(brokers)):
            try:
                (answer,) = self._admin.describe_log_dirs(wanted, brokers=[broker])
            except KafkaError as error:
                failed[broker] = describe_error(error)
                continue
            directories = [entry for entry in answer["log_dirs"] if entry["error_code"] == 0]
            if not directories:  # a request that is denied looks the same
                failed[broker] = "no log directory in the answer; is DESCRIBE on the cluster allowed?"
                continue
            _add_sizes(sizes, broker, directories)
            free = [entry.get("usable_bytes", -1) for entry in answer["log_dirs"]]
            if min(free) >= 0:
                usable[broker] = sum(free)
        return LogSizes(sizes_bytes=sizes, usable_bytes=usable, failed=failed)

    def end_offsets(self, leaders: Mapping[Partition, int]) -> dict[Partition, int]:
        """End offset of each partition that has a leader.

        They only tell a log that shrank from one without writes, so they are empty if they cannot be read.
        """
        led = [TopicPartition(*partition) for partition, leader in leaders.items() if leader != NO_LEADER]
        if not led:
            return {}
        with suppress(KafkaError):
            ends = self._admin.list_partition_offsets(dict.fromkeys(led, OffsetSpec.LATEST))
            return {(where.topic, where.partition): end.offset for where, end in ends.items()}
        return {}

    @_explain_errors()
    def throttle(self, *, topics: Iterable[str], brokers: Iterable[int]) -> ThrottlesFound:
        """Lists of the topics, which must exist, and rates of the brokers. Raises ``ClusterError`` if a topic cannot be read."""
        lists = _read(
            self._admin, ConfigResourceType.TOPIC, sorted(set(topics)), [list_key(role) for role in ROLES]
        )
        rates: dict[BrokerRole, int] = {}
        defaults: dict[Role, int] = {}
        failed: dict[int, str] = {}
        for broker in sorted(set(brokers)):
            try:
                (settings,) = _read(
                    self._admin, ConfigResourceType.BROKER, [str(broker)], [rate_key(role) for role in ROLES]
                ).values()
            except (KafkaError, ClusterError) as error:
                failed[broker] = describe_error(error)
                continue
            for role in ROLES:
                rate, default = map(_rate, settings.get(rate_key(role), _Value(None)))
                if rate is not None:
                    rates[BrokerRole(role, broker)] = rate
                if default is not None:
                    defaults[role] = default
        throttle = Throttle(
            lists=ThrottledLists(leader=_lists(lists, "leader"), follower=_lists(lists, "follower")),
            rates_bytes_per_s=rates,
            defaults_bytes_per_s=defaults,
        )
        return ThrottlesFound(throttle=throttle, failed=failed)

    @_explain_errors()
    def apply(self, changes: Iterable[Change]) -> None:
        """Make the changes one after the other and read each back. Raises ``ClusterError`` at the first that takes no effect."""
        for change in changes:
            value = ("DELETE", None) if change.value is None else change.value
            resource = ConfigResource(change.kind, change.name, {change.key: value})
            try:
                answer = self._admin.alter_configs([resource], raise_on_unknown=False)
            except KafkaError as error:
                raise ClusterError(
                    f"{change}: not set, {describe_error(error)}{_hint(change, repr(error))}"
                ) from error
            outcome = answer.get(change.kind.name.lower(), {}).get(change.name)
            if outcome != "OK":
                raise ClusterError(f"{change}: refused by Kafka: {outcome}{_hint(change, str(outcome))}")
            _wait_until_seen(self._admin, change)


def _add_sizes(
    sizes: dict[Partition, dict[int, int]], broker: int, directories: list[dict[str, object]]
) -> None:
    for directory in directories:
        for topic in directory["topics"]:  # type: ignore[attr-defined]
            for entry in topic["partitions"]:
                if not entry["is_future_key"]:  # a copy on its way between two disks of the broker
                    where = (topic["name"], entry["partition_index"])
                    sizes.setdefault(where, {})[broker] = entry["partition_size"]


@contextmanager
def cluster_of(target: KafkaTarget, *, cluster: str) -> Iterator[KafkaCluster]:
    """The cluster of a target, closed at the end. Raises ``ClusterError``, and ``WrongUse`` for a file it cannot read."""
    link = KafkaLink(target.bootstrap, f"targets.{cluster}.kafka", target.security)
    with connected(link, timeout_s=target.timeout_s, metadata_max_age_ms=_METADATA_AGE_MAX_MS) as admin:
        yield KafkaCluster(admin)


def rate_key(role: Role) -> str:
    """Name of the broker's setting."""
    return f"{role}.replication.throttled.rate"


def list_key(role: Role) -> str:
    """Name of the topic's setting."""
    return f"{role}.replication.throttled.replicas"


def _lists(topics: Mapping[str, Mapping[str, _Value]], role: Role) -> dict[str, str]:
    values = {topic: settings.get(list_key(role), _Value(None)).own for topic, settings in topics.items()}
    return {topic: text for topic, text in values.items() if text}


def _rate(value: str | None) -> int | None:
    """The rate as a number; None also for the largest number, which Kafka uses for "no rate"."""
    return None if value is None or int(value) == LARGEST_NUMBER else int(value)


def _read(
    admin: KafkaAdminClient, kind: ConfigResourceType, names: list[str], keys: list[str]
) -> dict[str, dict[str, _Value]]:
    """The values of those keys that are there, by resource name and key."""
    if not names:
        return {}
    asked = [ConfigResource(kind, name, dict.fromkeys([*keys, _ALWAYS_THERE[kind]])) for name in names]
    described = admin.describe_configs(asked, include_synonyms=True, config_filter="all")
    answers = described.get(kind.name.lower(), {})
    for name in names:
        if _ALWAYS_THERE[kind] not in answers.get(name, {}):
            raise ClusterError(
                f"the settings of {kind.name.lower()} {name} cannot be read; does it exist, and is "
                "DESCRIBE_CONFIGS allowed (ALTER_CONFIGS includes it)?"
            )
    return {
        name: {key: _value(kind, answers[name][key]) for key in keys if key in answers[name]}
        for name in names
    }


def _value(kind: ConfigResourceType, entry: Mapping[str, Any]) -> _Value:
    """The own value and the default: ``value`` alone would show the default as if it were the broker's own."""
    set_at = {synonym["source"]: synonym["value"] for synonym in entry["synonyms"]}
    return _Value(set_at.get(_OWN[kind]), set_at.get("DYNAMIC_DEFAULT_BROKER_CONFIG"))


def changes_of(
    before: Throttle, lists: ThrottledLists, rates: Mapping[BrokerRole, int | None]
) -> list[Change]:
    """The changes that make lists and rates as given, rates first; an empty list and None mean: remove.

    Raises ``ValueError`` for a rate below 1: at 0 nothing would ever move, and Kafka accepts it.
    """
    return [*_rate_changes(before, rates), *_list_changes(before.lists, lists)]


def _rate_changes(before: Throttle, rates: Mapping[BrokerRole, int | None]) -> Iterator[Change]:
    for role, rate in rates.items():
        if rate is not None and not 1 <= rate <= LARGEST_NUMBER:
            raise ValueError(f"{role}: a rate of {rate} is refused; expected 1 to {LARGEST_NUMBER}")
        if before.rates_bytes_per_s.get(role) != rate:
            yield Change(
                kind=ConfigResourceType.BROKER,
                name=str(role.broker),
                key=rate_key(role.role),
                value=None if rate is None else str(rate),
            )


def _list_changes(before: ThrottledLists, lists: ThrottledLists) -> Iterator[Change]:
    for role in ROLES:
        there: Mapping[str, str] = getattr(before, role)
        wanted: Mapping[str, str] = getattr(lists, role)
        for topic, text in wanted.items():
            if there.get(topic, "") != text:
                yield Change(
                    kind=ConfigResourceType.TOPIC, name=topic, key=list_key(role), value=text or None
                )


def _hint(change: Change, refusal: str) -> str:
    """The permission to check, if the refusal is about one; otherwise empty."""
    if "authoriz" not in refusal.lower():
        return ""
    what = "the cluster" if change.kind is ConfigResourceType.BROKER else f"topic {change.name}"
    return f"; is ALTER_CONFIGS on {what} allowed?"


def _wait_until_seen(admin: KafkaAdminClient, change: Change) -> None:
    if not poll(
        lambda: _read_value_in_force(admin, change) == change.value,
        timeout_s=_SEEN_TIMEOUT_S,
        pause_s=_POLL_S,
    ):
        shown = _read_value_in_force(admin, change)
        raise ClusterError(f"{change}: accepted by Kafka, but it shows {shown} after {_SEEN_TIMEOUT_S:.0f} s")


def _read_value_in_force(admin: KafkaAdminClient, change: Change) -> str | None:
    value = (
        _read(admin, change.kind, [change.name], [change.key])[change.name].get(change.key, _Value(None)).own
    )
    return None if value in ("", str(LARGEST_NUMBER)) else value
