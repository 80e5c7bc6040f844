"""Application: lag, durations, state, what could not be used, restarts; about the process, not about a cluster."""

from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.panels import ORANGE, RED, Query, Step, frame, graph, number
from deploy.grafana.queries import (
    DAY_S,
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

_QUANTILES = (0.5, 0.95, 0.99)


def build() -> dashboard.Dashboard:
    """The dashboard of the controller's process."""
    return frame(
        "trimtab-application",
        "trimtab / Application",
        "Lag, durations, state, what could not be used, restarts.",
        ("Process", _process()),
        ("Time", _time()),
        ("State and input", _state()),
    )


def _process() -> list[Stat]:
    return [
        *_running(),
        *_restarts(),
        *_batches(),
    ]


def _running() -> list[Stat]:
    return [
        number(
            "Version",
            "Versions in use; more than one while an upgrade goes on.",
            Query(
                or_word(f"max by (version) ({select(families.BUILD_INFO)})", "version", "not running"),
                "{{version}}",
            ),
            unit=units.Short,
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
            unit=units.Short,
            runbook="no-leader",
            named=True,
            never_zero=True,
        ),
        number(
            "Standing by",
            "Processes that do not lead. A process that is starting counts too.",
            Query(or_zero(f"sum({select(families.LEADER)} == bool 0)")),
            unit=units.Short,
            runbook="no-leader",
        ),
        number(
            "Up for",
            "Time since the process started.",
            Query(age(families.START, by="instance"), "{{instance}}"),
            unit=units.Seconds,
            runbook="restarts",
            no_value="not running",
        ),
    ]


def _restarts() -> list[Stat]:
    return [
        number(
            "Restarts",
            "Starts of the process in the last 24 hours beyond the first.",
            Query(or_zero(f"sum(changes({select(families.START)}[{DAY_S}s]))")),
            unit=units.Short,
            steps=[Step(1, ORANGE)],
            runbook="restarts",
        ),
        number(
            "New queries",
            "Restarts of the streaming query in the last 24 hours.",
            Query(in_a_day(families.QUERY_RESTARTS)),
            unit=units.Short,
            steps=[Step(1, ORANGE)],
            runbook="restarts",
        ),
    ]


def _batches() -> list[Stat]:
    return [
        number(
            "Left to read",
            "Records that the last micro-batch left for the next, in the partition furthest behind.",
            Query(f"max({select(families.INPUT_BEHIND)})"),
            unit=units.Short,
            steps=[Step(10_000, ORANGE)],
            runbook="lag",
        ),
        number(
            "Batches skipped",
            "Batches of the last 24 hours that had been published before a restart and were not published again.",
            Query(in_a_day(families.BATCHES_SKIPPED)),
            unit=units.Short,
        ),
    ]


def _time() -> list[Graph]:
    return [
        graph(
            "Decision lag",
            "Time from the end of a round until it is published; lateness_s is part of it.",
            *_quantiles(families.DECISION_LAG),
            unit=units.Seconds,
            steps=[Step(60, RED)],
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


def _quantiles(family: Family) -> list[Query]:
    return [Query(quantile(family, q), f"{100 * q:g} %") for q in _QUANTILES]


def _state() -> list[Graph]:
    return [
        graph(
            "Micro-batches",
            "Micro-batches per second. Without input there are none.",
            Query(rate(families.BATCH_DURATION, by="instance", sample="count"), "{{instance}}"),
            unit=units.CountsPerSecond,
            width=8,
        ),
        graph(
            "State rows",
            "Rows of the state store: two for each cluster, and the reports that wait in open rounds.",
            Query(latest(families.STATE_ROWS, by="instance"), "{{instance}}"),
            unit=units.Short,
            width=8,
        ),
        graph(
            "State memory",
            "Memory of the state store.",
            Query(latest(families.STATE_MEMORY, by="instance"), "{{instance}}"),
            unit=units.BytesIEC,
            width=8,
        ),
        graph(
            "Rejected",
            "Records sent to the dead letter, by reason.",
            Query(each_step(families.REJECTED, by="reason"), "{{reason}}"),
            unit=units.Short,
            stacked=True,
            runbook="dead-letters",
        ),
        graph(
            "Events",
            "Input events, by type.",
            Query(rate(families.EVENTS, by="type"), "{{type}}"),
            unit=units.CountsPerSecond,
        ),
        graph(
            "Clusters",
            "Clusters whose load reports were used, without clusters that were silent for forget_cluster_s.",
            Query(latest(families.CLUSTERS, by="instance"), "{{instance}}"),
            unit=units.Short,
            runbook="many-clusters",
        ),
    ]
