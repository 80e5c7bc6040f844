"""Executors and collectors: do they get to their topics and brokers, what became of actions, what was read."""

from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.panels import ORANGE, RED, Query, Step, frame, graph, number
from deploy.grafana.queries import age, each_step, latest, quantile, rate
from streaming.contract import families

_NONE = "none is scraped"


def build() -> dashboard.Dashboard:
    """The dashboard of the programs beside the controller."""
    return frame(
        "trimtab-programs",
        "trimtab / Executors and collectors",
        "Whether they reach their topics and brokers, what happened to the actions, and what was read.",
        ("Alive", _alive()),
        ("Executors", _executors()),
        ("Collectors", _collectors()),
    )


def _alive() -> list[Stat]:
    return [
        number(
            "Last poll",
            "Time since an executor of the cluster last polled for actions and the brokers answered.",
            Query(age(families.EXECUTOR_LAST_POLL, by="cluster"), "{{cluster}}"),
            unit=units.Seconds,
            steps=[Step(180, RED)],
            runbook="executor-not-polling",
            no_value=_NONE,
            width=12,
        ),
        number(
            "Last sweep",
            "Time since a collector last read all brokers of the cluster.",
            Query(age(families.COLLECTOR_LAST_SWEEP, by="cluster"), "{{cluster}}"),
            unit=units.Seconds,
            steps=[Step(600, RED)],
            runbook="collector-stalled",
            no_value=_NONE,
            width=12,
        ),
    ]


def _executors() -> list[Graph]:
    return [
        graph(
            "Carried out",
            "Actions, by outcome.",
            Query(each_step(families.EXECUTOR_ACTIONS, by="outcome"), "{{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="action-failures",
        ),
        graph(
            "Skipped, and why",
            "Actions that were not carried out, by reason.",
            Query(each_step(families.EXECUTOR_SKIPS, by="reason"), "{{reason}}"),
            unit=units.Short,
            stacked=True,
        ),
        graph(
            "Began again",
            "Batches that were dropped, because topics failed or the consumer group had removed the "
            "executor.",
            Query(each_step(families.EXECUTOR_DROPPED, by="cluster"), "{{cluster}}"),
            unit=units.Short,
            stacked=True,
            steps=[Step(1, ORANGE)],
            runbook="executor-stumbling",
            width=8,
        ),
        graph(
            "Duration of actions",
            "Time from the start of an action until its outcome is known, 95th percentile.",
            Query(quantile(families.EXECUTOR_DURATION, 0.95), "95 %"),
            unit=units.Seconds,
            width=8,
        ),
        graph(
            "Not as asked",
            "Bundles that landed on another broker than their destination, and records that are not actions.",
            Query(each_step(families.EXECUTOR_ELSEWHERE, by="cluster"), "{{cluster}} landed elsewhere"),
            Query(each_step(families.EXECUTOR_UNREADABLE, by="cluster"), "{{cluster}} unreadable"),
            unit=units.Short,
            stacked=True,
            width=8,
        ),
    ]


def _collectors() -> list[Graph]:
    return [
        graph(
            "Sweeps",
            "Sweeps over all brokers, by result.",
            Query(each_step(families.COLLECTOR_SWEEPS, by="result"), "{{result}}"),
            unit=units.Short,
            stacked=True,
            runbook="collector-stalled",
        ),
        graph(
            "Brokers asked",
            "Requests to single brokers, by result.",
            Query(each_step(families.COLLECTOR_READS, by="result"), "{{result}}"),
            unit=units.Short,
            stacked=True,
            runbook="no-reports",
        ),
        graph(
            "Brokers",
            "Brokers that the cluster lists as alive, and brokers where Pulsar's own shedding or splitting "
            "is on.",
            Query(latest(families.COLLECTOR_BROKERS, by="cluster"), "{{cluster}} alive"),
            Query(latest(families.COLLECTOR_BALANCERS, by="cluster, kind"), "{{cluster}} {{kind}} by Pulsar"),
            unit=units.Short,
            width=8,
        ),
        graph(
            "Duration of sweeps",
            "Duration of complete sweeps, 95th percentile.",
            Query(quantile(families.COLLECTOR_SWEEP_DURATION, 0.95), "95 %"),
            unit=units.Seconds,
            width=8,
        ),
        graph(
            "Events written",
            "Events that collectors sent, by type.",
            Query(rate(families.COLLECTOR_EVENTS, by="type"), "{{type}}"),
            unit=units.CountsPerSecond,
            width=8,
        ),
    ]
