"""Overview: is it alive, is it deciding, what did it do today, are the clusters balanced, is anything held and why."""

from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.panels import ORANGE, POINTS, RED, Query, Step, frame, graph, number
from deploy.grafana.queries import (
    UNLOADS,
    age,
    each_step,
    in_a_day,
    infeasible,
    latest,
    or_zero,
    select,
    share,
)
from streaming.contract import families

NOT_HELD = 'outcome!~"acted|need-met|no-traffic"'
"""Matches the bundles that were held back, by leaving out the outcomes of all others."""


def build() -> dashboard.Dashboard:
    """The dashboard to open first."""
    return frame(
        "trimtab-overview",
        "trimtab / Overview",
        "Whether trimtab runs and decides, what it did today, whether the clusters are balanced, and "
        "what is held and why.",
        ("Alive and deciding", _alive()),
        ("The last 24 hours", _today()),
        ("Balance", _balance()),
        ("Held, and why", _held_panel()),
    )


def _alive() -> list[Stat]:
    return [
        *_answering(),
        *_deciding(),
        *_held_from_acting(),
        _moves_in_trouble(),
    ]


def _answering() -> list[Stat]:
    return [
        number(
            "Controllers",
            "Processes that answered the last scrape. Several with the same name fence each other.",
            Query(or_zero(f"count({select(families.BUILD_INFO)})")),
            unit=units.Short,
            runbook="down",
            never_zero=True,
            width=6,
        ),
        number(
            "Alerts",
            "Alerts of deploy/prometheus that are firing.",
            Query('count(ALERTS{alertname=~"Trimtab.+",alertstate="firing"}) or vector(0)'),
            unit=units.Short,
            steps=[Step(1, RED)],
            runbook="README",
            width=6,
        ),
    ]


def _deciding() -> list[Stat]:
    return [
        number(
            "Last round",
            "Time since the end of the last closed round, for the cluster that waits longest. With the "
            "default round length of a minute, two or three minutes are normal.",
            Query(f"max({age(families.LAST_ROUND_END, by='cluster')})"),
            unit=units.Seconds,
            steps=[Step(240, ORANGE), Step(600, RED)],
            runbook="no-reports",
            no_value="no round",
            width=6,
        ),
        number(
            "Decided",
            "Share of the rounds of the last hour in which the policies ran. The others were warm-up, without quorum or ended in an internal error.",
            Query(share(families.ROUNDS, 'outcome="decided"', over="1h")),
            unit=units.PercentUnit,
            runbook="not-deciding",
            no_value="no round",
            width=6,
        ),
    ]


def _held_from_acting() -> list[Stat]:
    return [
        number(
            "In dry-run",
            "Clusters in dry-run: no executor carries out their actions.",
            Query(or_zero(f"sum({latest(families.DRY_RUN, by='cluster')})")),
            unit=units.Short,
            steps=[Step(1, ORANGE)],
            runbook="dry-run-forgotten",
            width=6,
        ),
        number(
            "Paused",
            "Paused clusters: a control event holds all their actions.",
            Query(or_zero(f"sum({latest(families.PAUSED, by='cluster')})")),
            unit=units.Short,
            steps=[Step(1, ORANGE)],
            runbook="paused",
            width=6,
        ),
        number(
            "Failing",
            "Clusters where all unloads, or all splits, are held until a person resumes the cluster, "
            "because too many of the last ones failed or had no effect.",
            Query(or_zero(f"sum({latest(families.FAILING, by='cluster')})")),
            unit=units.Short,
            steps=[Step(1, RED)],
            runbook="failing",
            width=6,
        ),
    ]


def _moves_in_trouble() -> Stat:
    return number(
        "Late moves",
        "Kafka clusters whose reassignment never ends at its throttle, or will miss its deadline.",
        Query(or_zero(f"count(({infeasible()}) or ({_LATE} == 1))")),
        unit=units.Short,
        steps=[Step(1, ORANGE)],
        runbook="throttle-infeasible",
        width=6,
    )


_LATE = latest(families.REASSIGNMENT_LATE, by="cluster")


def _today() -> list[Stat | Graph]:
    return [
        _count(
            "Actions", "Actions published for executors to carry out.", families.ACTIONS, 'dry_run="false"'
        ),
        _count(
            "Actions in dry-run",
            "Actions published only for you to look at.",
            families.ACTIONS,
            'dry_run="true"',
        ),
        _count(
            "Failed",
            "Actions that an executor could not carry out.",
            families.ACTION_RESULTS,
            'outcome="failed"',
            runbook="action-failures",
        ),
        _count(
            "Moved again",
            "Unloads of a bundle that had already been unloaded in the 6 hours before.",
            families.REPEATED_UNLOADS,
            runbook="oscillation",
        ),
        _count("Dead letters", "Records that could not be used.", families.REJECTED, runbook="dead-letters"),
        _count(
            "New queries",
            "Restarts of the streaming query, e.g. after a broker outage.",
            families.QUERY_RESTARTS,
            runbook="restarts",
        ),
        graph(
            "Actions over time",
            "Actions published, by cluster and kind.",
            Query(each_step(families.ACTIONS, by="cluster, kind, dry_run"), _BY_KIND),
            unit=units.Short,
            stacked=True,
            width=24,
        ),
    ]


_BY_KIND = "{{cluster}} {{kind}} (dry-run {{dry_run}})"


def _count(title: str, text: str, family: families.Family, *matchers: str, runbook: str = "") -> Stat:
    """How often something happened in 24 hours; with a runbook, 1 or more is orange, because it is worth a look."""
    return number(
        title,
        text,
        Query(in_a_day(family, *matchers)),
        unit=units.Short,
        steps=[Step(1, ORANGE)] if runbook else [],
        runbook=runbook,
    )


def _balance() -> list[Graph]:
    overall = 'resource="overall"'
    return [
        graph(
            "Spread",
            "Standard deviation of the brokers' usage in each cluster.",
            Query(
                latest(families.BROKER_USAGE, overall, 'stat="stdev"', by="cluster"),
                "{{cluster}}",
            ),
            unit=POINTS,
            runbook="unbalanced",
        ),
        graph(
            "Standing out",
            "Pairs or brokers that stood out in the last decided round; 0 is balanced.",
            Query(latest(families.OUTLIERS, by="cluster"), "{{cluster}}"),
            unit=units.Short,
            runbook="unbalanced",
        ),
    ]


def _held_panel() -> list[Graph]:
    return [
        graph(
            "Bundles held back",
            "Bundles that were not moved although their broker fired, by reason; docs/decisions.md says "
            "what to do about each.",
            Query(
                each_step(families.CANDIDATES, UNLOADS, NOT_HELD, by="cluster, outcome"),
                "{{cluster}} {{outcome}}",
            ),
            unit=units.Short,
            stacked=True,
        ),
        graph(
            "Rounds",
            "Closed rounds by outcome: only decided ones can lead to actions.",
            Query(each_step(families.ROUNDS, by="outcome"), "{{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="not-deciding",
        ),
    ]
