"""How much of the past decisions depend on: how far back the input is read to rebuild the memory of all clusters."""

from collections.abc import Iterator

from state.engine.ledger import HOUR_MS
from state.kafka.reconcile import RETRY_MS_MAX
from state.round_settings import MS_PER_S
from state.settings import KafkaSettings, PulsarSettings, RoundSettings
from streaming.settings.tree import Settings


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
    rounds.append(pulsar.policy.remembers_rounds(pulsar.of_policy(pulsar.policy)))
    return _span_s(pulsar.rounds, seconds, rounds)


def _of_kafka(kafka: KafkaSettings) -> float:
    throttle = kafka.throttle
    seconds = [throttle.min_change_interval_s, RETRY_MS_MAX / MS_PER_S]
    return _span_s(kafka.rounds, seconds, [throttle.stale_rounds_count])


def _span_s(rounds: RoundSettings, seconds: list[float], counts: list[int]) -> float:
    longest_rounds = max(counts) + rounds.warmup_rounds + 1
    return max([*seconds, longest_rounds * rounds.length_s]) + rounds.max_report_age_s + rounds.lateness_s
