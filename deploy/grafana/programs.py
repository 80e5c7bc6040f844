"""The processes: the controller's own lag, durations, state and restarts; and whether executors and collectors get through."""

from grafana_foundation_sdk.models import dashboard, units
from grafana_foundation_sdk.models.dashboard import Threshold

from deploy.grafana.panels import ORANGE, RED, bars, frame, graph, number
from deploy.grafana.queries import (
    DAY_S,
    Query,
    age,
    each_step,
    in_a_day,
    latest,
    or_word,
    or_zero,
    quantile,
    rate,
    select,
)
from streaming.contract import families
from streaming.contract.families import Family


def build_application() -> dashboard.Dashboard:
    """The dashboard of the controller's process."""
    return frame(
        "trimtab-application",
        "trimtab / Application",
        "Lag, durations, state, what could not be used, restarts.",
        ("Process", _PROCESS),
        ("Time", _TIME),
        ("State and input", _STATE),
    )


def build_programs() -> dashboard.Dashboard:
    """The dashboard of the programs beside the controller."""
    return frame(
        "trimtab-programs",
        "trimtab / Executors and collectors",
        "Whether they reach their topics and brokers, what happened to the actions, and what was read.",
        ("Alive", _ALIVE),
        ("Executors", _EXECUTORS),
        ("Collectors", _COLLECTORS),
    )


_PROCESS = [
    number(
        "Version",
        "Versions in use; more than one while an upgrade goes on.",
        Query(
            or_word(f"max by (version) ({select(families.BUILD_INFO)})", "version", "not running"),
            "{{version}}",
        ),
        runbook="down",
        named=True,
        never_zero=True,
    ),
    number(
        "Leader",
        "The process that leads. The others stand by or are starting.",
        Query(
            or_word(f"max by (instance) ({select(families.LEADER)}) == 1", "instance", "no leader"),
            "{{instance}}",
        ),
        runbook="no-leader",
        named=True,
        never_zero=True,
    ),
    number(
        "Standing by",
        "Processes that do not lead. A process that is starting counts too.",
        or_zero(f"sum({select(families.LEADER)} == bool 0)"),
        runbook="no-leader",
    ),
    number(
        "Up for",
        "Time since the process started.",
        age(families.START, by="instance"),
        unit=units.Seconds,
        runbook="restarts",
        no_value="not running",
    ),
    number(
        "Restarts",
        "Starts of the process in the last 24 hours beyond the first.",
        or_zero(f"sum(changes({select(families.START)}[{DAY_S}s]))"),
        steps=[Threshold(1, ORANGE)],
        runbook="restarts",
    ),
    number(
        "New queries",
        "Restarts of the streaming query in the last 24 hours.",
        in_a_day(families.QUERY_RESTARTS),
        steps=[Threshold(1, ORANGE)],
        runbook="restarts",
    ),
    number(
        "Left to read",
        "Records that the last micro-batch left for the next, in the partition furthest behind.",
        f"max({select(families.INPUT_LAG)})",
        steps=[Threshold(10_000, ORANGE)],
        runbook="lag",
    ),
    number(
        "Batches skipped",
        "Batches of the last 24 hours that had been published before a restart and were not published again.",
        in_a_day(families.BATCHES_SKIPPED),
    ),
]


def _quantiles(family: Family) -> list[Query]:
    return [quantile(family, q) for q in (0.5, 0.95, 0.99)]


_TIME = [
    graph(
        "Decision lag",
        "Time from the end of a round until it is published; lateness_s is part of it.",
        *_quantiles(families.DECISION_LAG),
        unit=units.Seconds,
        steps=[Threshold(60, RED)],
        runbook="lag",
        width=8,
    ),
    graph(
        "Batch duration",
        "Duration of a micro-batch, publishing included.",
        *_quantiles(families.BATCH_DURATION),
        unit=units.Seconds,
        runbook="lag",
        width=8,
    ),
    graph(
        "Publish latency",
        "Duration of the transaction that holds a batch's records and its marker.",
        *_quantiles(families.PUBLISH_DURATION),
        unit=units.Seconds,
        runbook="lag",
        width=8,
    ),
]

_STATE = [
    graph(
        "Micro-batches",
        "Micro-batches per second. Without input there are none.",
        rate(families.BATCH_DURATION, by="instance", sample="count"),
        unit=units.CountsPerSecond,
        width=8,
    ),
    graph(
        "State rows",
        "Rows of the state store: two for each cluster, and the reports that wait in open rounds.",
        latest(families.STATE_ROWS, by="instance"),
        width=8,
    ),
    graph(
        "State memory",
        "Memory of the state store.",
        latest(families.STATE_MEMORY, by="instance"),
        unit=units.BytesIEC,
        width=8,
    ),
    bars(
        "Rejected",
        "Records sent to the dead letter, by reason.",
        each_step(families.REJECTED, by="reason"),
        runbook="dead-letters",
    ),
    graph(
        "Events",
        "Input events, by type.",
        rate(families.EVENTS, by="type"),
        unit=units.CountsPerSecond,
    ),
    graph(
        "Clusters",
        "Clusters whose load reports were used, without clusters that were silent for forget_cluster_s.",
        latest(families.CLUSTERS, by="instance"),
        runbook="many-clusters",
    ),
]

_ALIVE = [
    number(
        "Last poll",
        "Time since an executor of the cluster last polled for actions and the brokers answered.",
        age(families.EXECUTOR_LAST_POLL, by="cluster"),
        unit=units.Seconds,
        steps=[Threshold(180, RED)],
        runbook="executor-not-polling",
        no_value="none is scraped",
        width=12,
    ),
    number(
        "Last sweep",
        "Time since a collector last read all brokers of the cluster.",
        age(families.COLLECTOR_LAST_SWEEP, by="cluster"),
        unit=units.Seconds,
        steps=[Threshold(600, RED)],
        runbook="collector-stalled",
        no_value="none is scraped",
        width=12,
    ),
]

_EXECUTORS = [
    bars(
        "Carried out",
        "Actions, by outcome.",
        each_step(families.EXECUTOR_ACTIONS, by="outcome"),
        runbook="action-failures",
    ),
    bars(
        "Skipped, and why",
        "Actions that were not carried out, by reason.",
        each_step(families.EXECUTOR_SKIPS, by="reason"),
    ),
    bars(
        "Began again",
        "Batches that were dropped, because topics failed or the consumer group had removed the executor.",
        each_step(families.EXECUTOR_DROPPED, by="cluster"),
        steps=[Threshold(1, ORANGE)],
        runbook="executor-stumbling",
        width=8,
    ),
    graph(
        "Duration of actions",
        "Time from the start of an action until its outcome is known, 95th percentile.",
        quantile(families.EXECUTOR_DURATION, 0.95),
        unit=units.Seconds,
        width=8,
    ),
    bars(
        "Not as asked",
        "Bundles that landed on another broker than their destination, and records that are not actions.",
        each_step(families.EXECUTOR_ELSEWHERE, by="cluster", word="landed elsewhere"),
        each_step(families.EXECUTOR_UNREADABLE, by="cluster", word="unreadable"),
        width=8,
    ),
]

_COLLECTORS = [
    bars(
        "Sweeps",
        "Sweeps over all brokers, by result.",
        each_step(families.COLLECTOR_SWEEPS, by="outcome"),
        runbook="collector-stalled",
    ),
    bars(
        "Brokers asked",
        "Requests to single brokers, by result.",
        each_step(families.COLLECTOR_READS, by="outcome"),
        runbook="no-reports",
    ),
    graph(
        "Brokers",
        "Brokers that the cluster lists as alive, and brokers where Pulsar's own shedding or splitting is on.",
        latest(families.COLLECTOR_BROKERS, by="cluster", word="alive"),
        latest(families.COLLECTOR_BALANCERS, by="cluster, kind", word="by Pulsar"),
        width=8,
    ),
    graph(
        "Duration of sweeps",
        "Duration of complete sweeps, 95th percentile.",
        quantile(families.COLLECTOR_SWEEP_DURATION, 0.95),
        unit=units.Seconds,
        width=8,
    ),
    graph(
        "Events written",
        "Events that collectors sent, by type.",
        rate(families.COLLECTOR_EVENTS, by="type"),
        unit=units.CountsPerSecond,
        width=8,
    ),
]
