"""The throttle on a cluster: read it, put it on, take it off, and look whether it is there.

Kafka accepts a misspelt key and a rate of 0, and reports errors in its answer instead of raising: so a rate below 1 is
refused here, every answer is looked at, and everything is read back. Lists and rates that are right already are not set
again. Config keys: ``leader.replication.throttled.rate``, ``…replicas`` and the same for ``follower``.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import LARGEST_NUMBER
from policies.throttle.rates import BrokerRole, Role
from streaming.kafka_admin.connection import ClusterError

ROLES: tuple[Role, Role] = ("leader", "follower")
_ALWAYS_THERE = {ConfigResourceType.TOPIC: "cleanup.policy", ConfigResourceType.BROKER: "node.id"}
"""A key that every answer has; without it the request was refused, which the client does not say."""
_SEEN_TIMEOUT_S = 10.0
"""A change is acknowledged before the broker shows it; it takes some ten milliseconds."""
_POLL_S = 0.05


def rate_key(role: Role) -> str:
    """The broker setting."""
    return f"{role}.replication.throttled.rate"


def list_key(role: Role) -> str:
    """The topic setting."""
    return f"{role}.replication.throttled.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Lists by topic and rates by role; only what is set."""

    lists: ThrottledLists = field(default_factory=ThrottledLists)
    rates_bytes_per_s: Mapping[BrokerRole, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting as it shall be; None: not set."""

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


def read_throttle(
    admin: KafkaAdminClient, *, topics: Iterable[str], brokers: Iterable[int]
) -> ThrottlesFound:
    """Lists of the topics, which must exist, and rates of the brokers. Raises ``ClusterError`` where a topic is refused."""
    lists = _read(admin, ConfigResourceType.TOPIC, sorted(set(topics)), [list_key(role) for role in ROLES])
    rates: dict[BrokerRole, int] = {}
    failed: dict[int, str] = {}
    for broker in sorted(set(brokers)):
        try:
            (found,) = _read(
                admin, ConfigResourceType.BROKER, [str(broker)], [rate_key(role) for role in ROLES]
            ).values()
        except (KafkaError, ClusterError) as error:
            failed[broker] = str(error) or repr(error)
            continue
        rates |= {
            BrokerRole(role, broker): int(found[rate_key(role)]) for role in ROLES if _is_rate(found, role)
        }
    by_role = [
        {topic: found[list_key(role)] for topic, found in lists.items() if found.get(list_key(role))}
        for role in ROLES
    ]
    throttle = Throttle(lists=ThrottledLists(leader=by_role[0], follower=by_role[1]), rates_bytes_per_s=rates)
    return ThrottlesFound(throttle=throttle, failed=failed)


def _is_rate(found: Mapping[str, str], role: Role) -> bool:
    value = found.get(rate_key(role))
    return value is not None and int(value) != LARGEST_NUMBER  # the default, which is no throttle


def _read(
    admin: KafkaAdminClient, kind: ConfigResourceType, names: list[str], keys: list[str]
) -> dict[str, dict[str, str]]:
    """Values of the keys that have one, by resource name."""
    if not names:
        return {}
    asked = [ConfigResource(kind, name, dict.fromkeys([*keys, _ALWAYS_THERE[kind]])) for name in names]
    answers = admin.describe_configs(asked, config_filter="all").get(kind.name.lower(), {})
    for name in names:
        if _ALWAYS_THERE[kind] not in answers.get(name, {}):
            raise ClusterError(
                f"the settings of {kind.name.lower()} {name} cannot be read; does it exist, and is DESCRIBE_CONFIGS allowed?"
            )
    return {
        name: {
            key: answers[name][key]["value"]
            for key in keys
            if answers[name].get(key, {}).get("value") is not None
        }
        for name in names
    }


def changes_of(
    before: Throttle, lists: ThrottledLists, rates: Mapping[BrokerRole, int | None]
) -> list[Change]:
    """What has to be set for the lists and rates to be as given, rates first; an empty list and None mean: remove.

    Raises ``ValueError`` for a rate below 1: at 0 nothing would ever move, and Kafka takes it.
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


def apply(admin: KafkaAdminClient, changes: Iterable[Change]) -> None:
    """Set them one after the other, each read back. Raises ``ClusterError`` at the first that does not take."""
    for change in changes:
        value = ("DELETE", None) if change.value is None else change.value
        resource = ConfigResource(change.kind, change.name, {change.key: value})
        try:
            answer = admin.alter_configs([resource], raise_on_unknown=False)
        except KafkaError as error:
            raise ClusterError(f"{change}: not set, {error!r}") from error
        outcome = answer.get(change.kind.name.lower(), {}).get(change.name)
        if outcome != "OK":
            raise ClusterError(f"{change}: refused by Kafka: {outcome}")
        _wait_until_seen(admin, change)


def _wait_until_seen(admin: KafkaAdminClient, change: Change) -> None:
    deadline = time.monotonic() + _SEEN_TIMEOUT_S
    while (found := _shown(admin, change)) != change.value:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{change}: accepted by Kafka, but it shows {found} after {_SEEN_TIMEOUT_S:.0f} s"
            )
        time.sleep(_POLL_S)


def _shown(admin: KafkaAdminClient, change: Change) -> str | None:
    value = _read(admin, change.kind, [change.name], [change.key])[change.name].get(change.key)
    return None if value in ("", None, str(LARGEST_NUMBER)) else value
