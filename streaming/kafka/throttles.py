"""A cluster's throttle as Kafka's dynamic settings: what is set, what shall be, and the changes from one to the other.

Kafka accepts a misspelt key and a rate of 0, and reports errors in its answer instead of raising: so a rate below 1 is
refused here, every answer is checked, and everything is read back. Lists and rates that are right already are not set
again. Config keys: ``leader.replication.throttled.rate``, ``…replicas`` and the same for ``follower``; for moves between disks
``replica.alter.log.dirs.io.max.bytes.per.second`` (KIP-113).

A rate may also be the default of all brokers (``kafka-configs --entity-default``). A broker's own rate overrides it, and
the default is never changed here. Kafka ignores a rate in ``server.properties``. Source: ``BrokerConfigHandler``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from policies.throttle.copies import LARGEST_NUMBER
from policies.throttle.lists import ThrottledLists
from policies.throttle.roles import LIST_ROLES, ROLES, BrokerRole, ListRole, Role
from streaming.kafka.client import ClusterError, describe_error
from streaming.process.deadline import poll

_ALWAYS_THERE = {ConfigResourceType.TOPIC: "cleanup.policy", ConfigResourceType.BROKER: "node.id"}
"""A key that every answer has. If it is missing, the request was refused; the client raises no error then."""
_OWN = {
    ConfigResourceType.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigResourceType.BROKER: "DYNAMIC_BROKER_CONFIG",
}
"""The source of a setting that is the topic's or broker's own."""
_MIN_ISR_KEY = "min.insync.replicas"
_THREADS_KEY = "num.replica.alter.log.dirs.threads"
"""Replicas that a broker moves between its disks at once; not set: one for each disk."""
_SEEN_TIMEOUT_S = 10.0
"""How long a broker may take to show a change after it acknowledged it; some ten milliseconds are normal."""
_POLL_S = 0.05


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
    in_force: str | None = None
    """The value that holds, wherever it comes from."""


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
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """By topic, ``min.insync.replicas``."""
    disk_threads: Mapping[int, int] = field(default_factory=dict)
    """By broker, ``num.replica.alter.log.dirs.threads``, where it is set."""


def read_throttles(admin: KafkaAdminClient, topics: Iterable[str], brokers: Iterable[int]) -> ThrottlesFound:
    """Lists of the topics, which must exist, and rates of the brokers. Raises ``ClusterError`` if a topic cannot be read."""
    topic_keys = [*map(list_key, LIST_ROLES), _MIN_ISR_KEY]
    lists = _read(admin, ConfigResourceType.TOPIC, sorted(set(topics)), topic_keys)
    broker_keys = [*map(rate_key, ROLES), _THREADS_KEY]
    threads: dict[int, int] = {}
    rates: dict[BrokerRole, int] = {}
    defaults: dict[Role, int] = {}
    failed: dict[int, str] = {}
    for broker in sorted(set(brokers)):
        try:
            (settings,) = _read(admin, ConfigResourceType.BROKER, [str(broker)], broker_keys).values()
        except (KafkaError, ClusterError) as error:
            failed[broker] = describe_error(error)
            continue
        set_threads = settings.get(_THREADS_KEY, _Value(None)).in_force
        if set_threads is not None:
            threads[broker] = int(set_threads)
        for role in ROLES:
            rate, default = map(_rate, settings.get(rate_key(role), _Value(None))[:2])
            if rate is not None:
                rates[BrokerRole(role, broker)] = rate
            if default is not None:
                defaults[role] = default
    throttle = Throttle(
        lists=ThrottledLists(leader=_lists(lists, "leader"), follower=_lists(lists, "follower")),
        rates_bytes_per_s=rates,
        defaults_bytes_per_s=defaults,
    )
    min_isr = {
        topic: int(value)
        for topic, settings in lists.items()
        if (value := settings.get(_MIN_ISR_KEY, _Value(None)).in_force) is not None
    }
    return ThrottlesFound(throttle=throttle, failed=failed, min_isr=min_isr, disk_threads=threads)


def make_change(admin: KafkaAdminClient, change: Change) -> None:
    """Make a change and read it back. Raises ``ClusterError`` where it takes no effect."""
    value = ("DELETE", None) if change.value is None else change.value
    resource = ConfigResource(change.kind, change.name, {change.key: value})
    try:
        answer = admin.alter_configs([resource], raise_on_unknown=False)
    except KafkaError as error:
        raise ClusterError(
            f"{change}: not set, {describe_error(error)}{_hint(change, repr(error))}"
        ) from error
    outcome = answer.get(change.kind.name.lower(), {}).get(change.name)
    if outcome != "OK":
        raise ClusterError(f"{change}: refused by Kafka: {outcome}{_hint(change, str(outcome))}")
    _wait_until_seen(admin, change)


def rate_key(role: Role) -> str:
    """Name of the broker's setting."""
    if role == "disk":
        return "replica.alter.log.dirs.io.max.bytes.per.second"
    return f"{role}.replication.throttled.rate"


def list_key(role: ListRole) -> str:
    """Name of the topic's setting."""
    return f"{role}.replication.throttled.replicas"


def _lists(topics: Mapping[str, Mapping[str, _Value]], role: ListRole) -> dict[str, str]:
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
    return _Value(set_at.get(_OWN[kind]), set_at.get("DYNAMIC_DEFAULT_BROKER_CONFIG"), entry["value"])


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
    for role in LIST_ROLES:
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
