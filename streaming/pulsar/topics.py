"""The topics on Pulsar: how they must be set up, making them, and examining them.

Everything is set for the topic, nothing for its namespace, which may hold other people's topics. Only two settings of an
existing topic are ever changed: deduplication is switched on, because exactly-once publishing needs it, and deletion while
idle, which is Pulsar's default, is switched off. Neither changes a message. Any other difference is named with the command
that corrects it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import pulsar

from policies.wording import counted
from streaming.process.deadline import poll
from streaming.process.exits import words_of
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import close, explain_administrator, require_answer
from streaming.pulsar.http import PASSING, AdminError, CredentialsError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import partitions_count
from streaming.pulsar.positions import topic_path
from streaming.pulsar.publisher import commits_topic_of
from streaming.settings import Settings
from streaming.transport.errors import StartError, Unreachable
from streaming.transport.topics import (
    ACTIONS_RETENTION_MS,
    AUDIT_RETENTION_MS,
    BEATS_RETENTION_MS,
    INPUT_RETENTION_MS,
    BrokersSeen,
    Denied,
    Difference,
    Outcome,
    TopicOutcome,
    TopicsSeen,
)

Value = TypeVar("Value")
_MS_PER_MINUTE = 60_000
_FOR_EVER = -1
_MARKERS_MB = 100
"""Only the newest marker counts, however old it is; half a million markers need about this much."""
_COMPACTION_BYTES = 1024 * 1024
_NOT_ALLOWED = 405
"""The HTTP status that Pulsar answers where policies of single topics are switched off."""
_APPLIED_WITHIN_S, _POLL_S = 10.0, 0.05
_TIMEOUT_S = 10.0


class _Retention(msgspec.Struct, frozen=True):
    """Pulsar's ``RetentionPolicies``; -1 is without limit, and messages within both limits are kept."""

    retentionTimeInMinutes: int = 0  # noqa: N815  Pulsar's names
    retentionSizeInMB: int = 0  # noqa: N815

    def covers(self, wanted: "_Retention") -> bool:
        """Whether it keeps at least as much."""
        return _is_at_least(self.retentionTimeInMinutes, wanted.retentionTimeInMinutes) and _is_at_least(
            self.retentionSizeInMB, wanted.retentionSizeInMB
        )

    def __str__(self) -> str:
        return f"{counted(self.retentionTimeInMinutes, 'minute')}, {self.retentionSizeInMB} MiB (-1: without limit)"


class _Inactive(msgspec.Struct, frozen=True):
    """Pulsar's ``InactiveTopicPolicies``: when Pulsar deletes a topic to which no client is connected."""

    inactiveTopicDeleteMode: str = "delete_when_no_subscriptions"  # noqa: N815  Pulsar's names
    maxInactiveDurationSeconds: int = 86_400  # noqa: N815
    deleteWhileInactive: bool = False  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopicSpec:
    """A topic by its full name. ``partitions`` 0 makes a topic without partitions; ``is_single`` allows no partitions.

    A controller runs without a topic that ``is_optional``.
    """

    name: str
    retention: _Retention
    partitions: int = 0
    is_single: bool = False
    is_deduplicated: bool = False
    is_compacted: bool = False
    is_optional: bool = False


def specs_of(
    link: PulsarLink, settings: Settings, only: frozenset[str], *, input_partitions: int = 0
) -> list[PulsarTopicSpec]:
    """The topics in ``only``, each as it is made on this side."""
    names = settings.topics
    outputs = {
        names.actions: ACTIONS_RETENTION_MS,
        names.actions_dry_run: ACTIONS_RETENTION_MS,
        names.audit: AUDIT_RETENTION_MS,
        names.dead_letter: ACTIONS_RETENTION_MS,
    }
    specs = [
        PulsarTopicSpec(
            name=names.input,
            retention=_retention(INPUT_RETENTION_MS),
            partitions=input_partitions if input_partitions > 1 else 0,
        ),
        PulsarTopicSpec(name=names.control, retention=_retention(None), is_compacted=True),
        *(
            PulsarTopicSpec(name=name, retention=_retention(kept_ms), is_deduplicated=True, is_single=True)
            for name, kept_ms in outputs.items()
        ),
        PulsarTopicSpec(
            name=names.executor_kafka, retention=_retention(None), is_compacted=True, is_single=True
        ),
        PulsarTopicSpec(name=names.commits, retention=_Retention(_FOR_EVER, _MARKERS_MB), is_single=True),
        PulsarTopicSpec(
            name=names.beats, retention=_retention(BEATS_RETENTION_MS), is_single=True, is_optional=True
        ),
    ]
    own_names = {names.commits: commits_topic_of(names.commits, settings.controller.name)}
    return [
        replace(spec, name=link.full_name(own_names.get(spec.name, spec.name)))
        for spec in specs
        if spec.name in only
    ]


def _retention(kept_ms: int | None) -> _Retention:
    minutes = _FOR_EVER if kept_ms is None else kept_ms // _MS_PER_MINUTE
    return _Retention(minutes, _FOR_EVER)


def create(
    link: PulsarLink, settings: Settings, only: frozenset[str], *, input_partitions: int
) -> list[TopicOutcome]:
    """Make the topics that are missing, and correct in the others what ``_ensure`` may change; raises ``StartError``."""
    with open_admin(link) as admin:
        return [
            _ensure(admin, spec) for spec in specs_of(link, settings, only, input_partitions=input_partitions)
        ]


def _ensure(admin: PulsarAdmin, spec: PulsarTopicSpec) -> TopicOutcome:
    partitions = partitions_count(admin, spec.name)
    if partitions is None:
        _make(admin, spec)
        return TopicOutcome(topic=spec.name, outcome=Outcome.CREATED)
    switched = spec.is_deduplicated and not _is_deduplicated(admin, spec.name)
    if switched:
        _deduplicate(admin, spec.name)
    kept = _is_deleted_when_idle(admin, spec.name)
    if kept:
        _keep_while_idle(admin, spec.name)
    differences = tuple(differences_of(admin, spec, partitions))
    if switched or kept:
        outcome = Outcome.CHANGED if switched else Outcome.KEPT
    else:
        outcome = Outcome.DIFFERS if differences else Outcome.ALREADY_RIGHT
    return TopicOutcome(topic=spec.name, outcome=outcome, differences=differences)


def _make(admin: PulsarAdmin, spec: PulsarTopicSpec) -> None:
    path = topic_path(spec.name)
    if spec.partitions:
        admin.call("PUT", f"{path}/partitions", body=spec.partitions)
    else:
        admin.call("PUT", path)
    admin.call("POST", f"{path}/retention", body=msgspec.to_builtins(spec.retention))
    if spec.is_compacted:
        admin.call("POST", f"{path}/compactionThreshold", body=_COMPACTION_BYTES)
    _keep_while_idle(admin, spec.name)
    if spec.is_deduplicated:
        _deduplicate(admin, spec.name)


def _deduplicate(admin: PulsarAdmin, topic: str) -> None:
    admin.call("POST", f"{topic_path(topic)}/deduplicationEnabled", body=True)
    _wait_until(lambda: _is_deduplicated(admin, topic), f"{topic}: deduplication was switched on")


def _keep_while_idle(admin: PulsarAdmin, topic: str) -> None:
    body = msgspec.to_builtins(_Inactive())
    admin.call("POST", f"{topic_path(topic)}/inactiveTopicPolicies", body=body)
    what = f"{topic}: its deletion while idle was switched off"
    _wait_until(lambda: not _is_deleted_when_idle(admin, topic), what)


def _wait_until(is_applied: Callable[[], bool], what: str) -> None:
    """Wait until the brokers show it: policies of topics travel on a topic of Pulsar's own. Raises ``StartError``."""
    if not poll(is_applied, timeout_s=_APPLIED_WITHIN_S, pause_s=_POLL_S):
        raise StartError(
            f"{what}, but the brokers do not show it after {_APPLIED_WITHIN_S:g} s: look into their logs"
        )


def differences_of(admin: PulsarAdmin, spec: PulsarTopicSpec, partitions: int) -> Iterator[Difference]:
    """Settings that are not as they must be; those that would take messages away too early are only a warning."""
    if spec.is_single and partitions:
        yield Difference(
            topic=spec.name,
            setting="partitions",
            found=str(partitions),
            expected="none",
            remedy=f"Its messages are lost by: pulsar-admin topics delete-partitioned-topic {spec.name}; "
            "trimtab topics create",
        )
    if spec.is_deduplicated and not _is_deduplicated(admin, spec.name):
        yield Difference(
            topic=spec.name,
            setting="deduplication",
            found="off",
            expected="on, because records would be published twice after a crash",
            remedy="Run: trimtab topics create; or for the whole namespace: pulsar-admin namespaces "
            f"set-deduplication {spec.name.removeprefix('persistent://').rpartition('/')[0]} --enable",
        )
    if _is_deleted_when_idle(admin, spec.name):
        yield Difference(
            topic=spec.name,
            setting="deleteWhileInactive",
            found="true",
            expected="false, because Pulsar deletes the topic with all its messages while no client is connected",
            remedy="Run: trimtab topics create; or: pulsar-admin topicPolicies set-inactive-topic-policies "
            f"{spec.name} --disable-delete-while-inactive --max-inactive-duration 1d "
            "--delete-mode delete_when_no_subscriptions",
            tolerable=True,
        )
    kept = _policy_in_force(admin, spec.name, "retention", _Retention) or _Retention()
    if not kept.covers(spec.retention):
        wanted = spec.retention
        time_text = "-1" if wanted.retentionTimeInMinutes < 0 else f"{wanted.retentionTimeInMinutes}m"
        size_text = "-1" if wanted.retentionSizeInMB < 0 else f"{wanted.retentionSizeInMB}M"
        yield Difference(
            topic=spec.name,
            setting="retention",
            found=str(kept),
            expected=f"{wanted} or more",
            remedy=f"Run: pulsar-admin topicPolicies set-retention {spec.name} --time {time_text} --size {size_text}",
            tolerable=True,
        )


def time_to_live(admin: PulsarAdmin, namespace: str) -> Iterator[Denied]:
    """A warning if the namespace has a message TTL: Pulsar then acknowledges old messages by itself."""
    text = admin.get(f"/admin/v2/namespaces/{namespace}/messageTTL").strip()
    if text not in {b"", b"null", b"0"}:
        yield Denied(
            what=f"namespace {namespace}: messageTTL is {text.decode()} s, expected unset. It removes unread records.",
            remedy=f"Run: pulsar-admin namespaces remove-message-ttl {namespace}",
        )


def _is_deduplicated(admin: PulsarAdmin, topic: str) -> bool:
    """Whether deduplication is on, by the topic's policy, else by its namespace's, else by the brokers' settings."""
    return bool(_policy_in_force(admin, topic, "deduplicationEnabled", bool))


def _is_deleted_when_idle(admin: PulsarAdmin, topic: str) -> bool:
    """Whether Pulsar deletes the topic while idle, by the same policies; the brokers' setting is yes by default."""
    policy = _policy_in_force(admin, topic, "inactiveTopicPolicies", _Inactive)
    return policy is not None and policy.deleteWhileInactive


def _policy_in_force(admin: PulsarAdmin, topic: str, policy: str, kind: type[Value]) -> Value | None:
    """The policy in force; None where it is unset, which Pulsar answers with nothing, or with null."""
    text = admin.get(f"{topic_path(topic)}/{policy}", query={"applied": "true"}).strip()
    return None if text in {b"", b"null"} else msgspec.json.decode(text, type=kind)


def _is_at_least(limit: int, wanted: int) -> bool:
    return limit < 0 or (wanted >= 0 and limit >= wanted)


@contextmanager
def open_admin(link: PulsarLink) -> Iterator[PulsarAdmin]:
    """The admin API of a side. Raises ``Unreachable`` or ``StartError``."""
    try:
        with link.admin() as admin:
            yield admin
    except AdminError as error:
        place = link.place
        if error.status == _NOT_ALLOWED:
            raise StartError(
                f"{error}. The brokers have topicLevelPoliciesEnabled=false, so set them for the namespace: "
                f"pulsar-admin namespaces set-deduplication {place.namespace} --enable; pulsar-admin namespaces "
                f"set-retention {place.namespace} --time 30d --size -1"
            ) from error
        why = explain_administrator(error, place.namespace) or error
        kind = Unreachable if error.failure in PASSING else StartError
        raise kind(f"[{link.section}.pulsar]: {why}") from error
    except CredentialsError as error:
        raise StartError(f"[{link.section}.pulsar]: {error}") from error


def brokers_seen(link: PulsarLink, topic: str) -> BrokersSeen:
    """The brokers at both of their addresses: the admin API's, and the log's, where a topic is looked up.

    Raises ``Unreachable`` or ``StartError``.
    """
    with open_admin(link) as admin:
        version, ahead_s = admin.version(), admin.ahead_s(time.time)
    client = link.client(timeout_s=_TIMEOUT_S)
    try:
        client.get_topic_partitions(link.full_name(topic))
    except (pulsar.ConnectError, pulsar.Timeout, pulsar.LookupError) as error:
        raise Unreachable(
            f"{link.service_url} does not answer, though {link.place.admin_url} does: {words_of(error)}. Check {link.section}.url, "
            "and whether the brokers' advertised addresses can be reached from here"
        ) from error
    finally:
        close(client)
    return BrokersSeen(text="brokers of Pulsar", version=version, ahead_s=ahead_s)


def topics_seen(link: PulsarLink, settings: Settings, only: frozenset[str]) -> TopicsSeen:
    """The topics in ``only``, as they are now. Raises ``Unreachable`` or ``StartError``."""
    specs = specs_of(link, settings, only)
    executors = link.full_name(settings.topics.executor_kafka)
    with open_admin(link) as admin:
        counts = {spec: partitions_count(admin, spec.name) for spec in specs}
        differences = [
            difference
            for spec, partitions in counts.items()
            if partitions is not None
            for difference in differences_of(admin, spec, partitions)
        ]
        warnings = tuple(time_to_live(admin, link.place.namespace))
    try:
        require_answer(link.service_url)
    except pulsar.ConnectError as error:
        raise Unreachable(
            f"no broker of Pulsar answers, though {link.place.admin_url} does: {error}. Check {link.section}.url"
        ) from error
    missing = [spec for spec, partitions in counts.items() if partitions is None]
    optional = [spec for spec in missing if spec.is_optional or spec.name == executors]
    return TopicsSeen(
        count=len(specs),
        missing=tuple(spec.name for spec in missing if spec not in optional),
        missing_optional=tuple(spec.name for spec in optional),
        differences=tuple(differences),
        warnings=warnings,
    )
