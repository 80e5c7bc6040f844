"""The page of all metrics, made from a registry in which every metric has been used once."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from deploy.docs.examples import kafka_rounds
from policies.throttle.roles import ROLES
from state.events import ActionOutcome, RejectReason
from state.outputs import BrokerLoad, RoundSummary, Section, UsageSummary
from streaming.collector.kafka import EVENTS as KAFKA_EVENTS
from streaming.collector.kafka import READ_RESULTS as KAFKA_RESULTS
from streaming.collector.metrics import EVENTS as PULSAR_EVENTS
from streaming.collector.metrics import READ_RESULTS as PULSAR_RESULTS
from streaming.collector.metrics import CollectorMetrics
from streaming.contract.families import LEADER
from streaming.controller.metrics import KNOWN_LABELS, KnownLabels, Metrics
from streaming.controller.published import Published
from streaming.executor.metrics import KINDS, THROTTLE_KIND, ExecutorMetrics
from streaming.transport.intake import EVENT_TYPES, EventCount, EventObservation

_HEAD = """\
# Metrics

<!-- Written by `python -m deploy.docs`; edit streaming/contract/families.py, not this page. -->

For whoever draws a panel or writes an alert. Afterwards you know every metric, its labels and their values.

Each program serves its metrics at `/metrics` in the Prometheus format, beside `/healthz` and `/readyz`. Names that begin
with `trimtab_collector_` belong to `trimtab collect`, with `trimtab_executor_` to `trimtab execute`; all
others belong to the controller. Its counters rise when a batch has been published; a batch that is skipped because it was already published does not count. Bundles and topics are never labels,
brokers only for the usage of at most 100 of a cluster, and while a reassignment moves their replicas. A cluster's series exist from its first round, or its first
event that was used.

| metric | type | labels | meaning |
|---|---|---|---|
"""

_LABELS_HEAD = """
## Labels with known values

`outcome` of `trimtab_examined_total` and `trimtab_candidates_total` is the outcome in the round summary without its
numbers (`hit-count`).

| metric | label | values |
|---|---|---|
"""

_OPEN_LABELS = frozenset(
    {"cluster", "broker", "controller", "manager", "policy", "version", "pyspark", "python", "le"}
)
"""Labels whose values are open, so that the page does not list them."""
_WHOLE = {"role": ROLES}
"""Values of labels of which the examples show only some."""
_OPEN_METRICS = frozenset({"trimtab_examined", "trimtab_candidates"})

_CLUSTER = "east-1"
_EVENTS = EventObservation(
    cluster=_CLUSTER,
    counts=[EventCount(EVENT_TYPES[0], "used", 3)],
    rejected={"not-json": 1},
    action_results={"succeeded": 1},
)

_BUSY = BrokerLoad(
    broker="b1",
    usage_points=80.0,
    resources={"cpu": 80.0},
    messages_per_s=0.0,
    bytes_per_s=0.0,
    bundles_count=1,
    excluded=False,
    group=None,
)


def render_metrics() -> str:
    """The page; raises `RuntimeError` for a metric that was not used, since its labels would be missing."""
    families = sorted(used_families().collect(), key=lambda family: family.name)
    unused = [family.name for family in families if not family.samples]
    if unused:
        raise RuntimeError(
            f"no series of {', '.join(unused)}: observe it in {__name__}, so that it has labels"
        )
    rows = "".join(map(_row, families))
    return _HEAD + rows + _LABELS_HEAD + "".join(row for family in families for row in _label_rows(family))


class _All(Collector):
    """The metrics of several registries."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        return [family for registry in self._registries for family in registry.collect()]


def used_families() -> CollectorRegistry:
    """Metrics of the controller, and of a collector and an executor of either system."""
    collector = CollectorMetrics(
        _CLUSTER,
        results=tuple(dict.fromkeys((*PULSAR_RESULTS, *KAFKA_RESULTS))),
        events=tuple(dict.fromkeys((*PULSAR_EVENTS, *KAFKA_EVENTS))),
    )
    collector.observe_sweep(brokers_count=3, ended_s=0.0, duration_s=1.0)
    collector.show_balancers(shedding_count=0, splitting_count=0)
    collector.show_load_managers({"ModularLoadManagerImpl": 1})
    executor = ExecutorMetrics(_CLUSTER, kinds=(*KINDS, THROTTLE_KIND))
    executor.show_poll(0.0)
    registry = CollectorRegistry()
    registry.register(_All(_make_controller_metrics().registry, collector.registry, executor.registry))
    return registry


def _make_controller_metrics() -> Metrics:
    known = KnownLabels(
        rejected_reasons=get_args(RejectReason),
        event_types=EVENT_TYPES,
        result_outcomes=get_args(ActionOutcome),
        finding_kinds=KNOWN_LABELS.finding_kinds,
    )
    metrics = Metrics(known, version="", pyspark_version="")
    for event in _rounds():
        metrics.observe_round(event, published_s=event.time_s)
    metrics.observe_events(_EVENTS)
    metrics.show(LEADER, "trimtab", value=1)
    return metrics


def _rounds() -> Iterable[Published]:
    """The rounds of a Kafka cluster in the worked example, and one of a Pulsar cluster for the metrics that these leave unused."""
    rounds = kafka_rounds()
    yield from rounds
    last = rounds[-1].data
    assert isinstance(last, RoundSummary)
    counted: Section[Any] = Section(count=1, outcomes={"fired": 1}, heaviest=[])
    of_pulsar = msgspec.structs.replace(
        last,
        cluster=_CLUSTER,
        system="pulsar",
        policy="avg-shedder",
        usage=UsageSummary(mean_points=50.0, max_points=80.0, stdev_points=20.0),
        brokers=[_BUSY],
        examined=counted,
        candidates=counted,
        throttle=None,
    )
    yield replace(rounds[-1], data=of_pulsar)


def _row(family: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in labels_of(family.samples))
    return f"| `{scraped_name(family)}` | {family.type} | {labels} | {family.documentation} |\n"


def scraped_name(family: Metric) -> str:
    """The name as it is scraped."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def _label_rows(family: Metric) -> Iterable[str]:
    for label in labels_of(family.samples):
        if values := label_values(family, label):
            shown = ", ".join(f"`{value}`" for value in values)
            yield f"| `{scraped_name(family)}` | `{label}` | {shown} |\n"


def label_values(family: Metric, label: str) -> list[str]:
    """The known values of a label; empty for one whose values are open."""
    if family.name in _OPEN_METRICS or label in _OPEN_LABELS:
        return []
    if label in _WHOLE:
        return sorted(_WHOLE[label])
    return sorted({sample.labels[label] for sample in family.samples if label in sample.labels})


def labels_of(samples: Iterable[Sample]) -> list[str]:
    """Label names in the order of their declaration, without ``le``, which Prometheus adds to a histogram."""
    return list(dict.fromkeys(label for sample in samples for label in sample.labels if label != "le"))
