"""How much of the past decisions depend on: how far back the input is read to rebuild the memory of all clusters."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from state.engine.ledger import HOUR_MS
from state.kafka.reconcile import RETRY_MS_MAX
from state.settings import MS_PER_S, KafkaSettings, PulsarSettings, RoundSettings
from streaming.settings.tree import Settings

__all__ = ["memory_span_s"]

_LEFT_RATIO = 0.01
"""Share of a running average's past that is left when the past no longer counts."""


def memory_span_s(settings: Settings) -> float:
    """The longest cooldown, history and warm-up of any cluster, plus the time until an action of then is known to have ended."""
    ends_s = settings.controller.action_ttl_s
    return max(
        settings.controller.proposal_ttl_s,
        *(
            span_s + ends_s
            for pulsar, kafka in _sections(settings)
            for span_s in (_of_pulsar(pulsar), _of_kafka(kafka))
        ),
    )


def _sections(settings: Settings) -> Iterator[tuple[PulsarSettings, KafkaSettings]]:
    yield settings.pulsar, settings.kafka
    for section in settings.clusters.values():
        yield section.pulsar, section.kafka


def _of_pulsar(pulsar: PulsarSettings) -> float:
    guards, split = pulsar.guards, pulsar.split
    seconds = [guards.bundle_cooldown_s, guards.ineffective_rest_s, HOUR_MS / MS_PER_S]
    rounds = [pulsar.bundle_average_samples, guards.calm_after_change_rounds]
    if split.enabled:
        seconds.append(split.bundle_cooldown_s)
        rounds.append(split.average_samples)
    rounds += _counted_rounds(pulsar.of_policy(pulsar.policy))
    return _span_s(pulsar.rounds, seconds, rounds)


def _of_kafka(kafka: KafkaSettings) -> float:
    throttle = kafka.throttle
    seconds = [throttle.min_change_interval_s, RETRY_MS_MAX / MS_PER_S]
    return _span_s(kafka.rounds, seconds, [throttle.stale_rounds_count])


def _span_s(rounds: RoundSettings, seconds: list[float], counts: list[int]) -> float:
    longest_rounds = max(counts) + rounds.warmup_rounds + 1
    return max([*seconds, longest_rounds * rounds.length_s]) + rounds.max_report_age_s + rounds.lateness_s


def _counted_rounds(policy: Any) -> Iterator[int]:
    """Rounds that a policy counts, or after which the past no longer counts in its averages."""
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if field.name.endswith("hit_count"):
            yield int(value)
        elif field.name == "history_ratio" and 0 < value < 1:
            yield math.ceil(math.log(_LEFT_RATIO) / math.log(value))
