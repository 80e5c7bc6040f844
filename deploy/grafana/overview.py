"""Overview: is it alive, is it deciding, what did it do today, are the clusters balanced, is anything held and why."""

from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.models import dashboard, units
from grafana_foundation_sdk.models.dashboard import Threshold

from deploy.grafana.panels import ORANGE, POINTS, RED, bars, frame, graph, number
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
from streaming.contract.families import Family

_NOT_HELD = 'outcome!~"acted|need-met|no-traffic"'
"""Matches the bundles that were held back, by leaving out the outcomes of all others."""
_WORTH_A_LOOK, _ALARMING = [Threshold(1, ORANGE)], [Threshold(1, RED)]


def build() -> dashboard.Dashboard:
    """The dashboard to open first."""
    return frame(
        "trimtab-overview",
        "trimtab / Overview",
        "Whether trimtab runs and decides, what it did today, whether the clusters are balanced, and "
        "what is held and why.",
        ("Alive and deciding", [*_ALIVE, *_HELD]),
        ("The last 24 hours", [*_TODAY, _ACTIONS]),
        ("Balance", _BALANCE),
        ("Held, and why", _HELD_BACK),
    )


_ALIVE = [
    number(
        "Controllers",
        "Processes that answered the last scrape. Several with the same name fence each other.",
        or_zero(f"count({select(families.BUILD_INFO)})"),
        runbook="down",
        never_zero=True,
        width=6,
    ),
    number(
        "Alerts",
        "Alerts of deploy/prometheus that are firing.",
        'count(ALERTS{alertname=~"Trimtab.+",alertstate="firing"}) or vector(0)',
        steps=_ALARMING,
        runbook="README",
        width=6,
    ),
    number(
        "Last round",
        "Time since the end of the last closed round, for the cluster that waits longest. With the "
        "default round length of a minute, two or three minutes are normal.",
        f"max({age(families.LAST_ROUND_END, by='cluster')})",
        unit=units.Seconds,
        steps=[Threshold(240, ORANGE), Threshold(600, RED)],
        runbook="no-reports",
        no_value="no round",
        width=6,
    ),
    number(
        "Decided",
        "Share of the rounds of the last hour in which the policies ran. The others were warm-up, without quorum or ended in an internal error.",
        share(families.ROUNDS, 'outcome="decided"', over="1h"),
        unit=units.PercentUnit,
        runbook="not-deciding",
        no_value="no round",
        width=6,
    ),
]


def _clusters(title: str, text: str, family: Family, steps: list[Threshold], runbook: str) -> Stat:
    """How many clusters are in a state."""
    of_clusters = or_zero(f"sum({latest(family, by='cluster')})")
    return number(title, text, of_clusters, steps=steps, runbook=runbook, width=6)


_HELD = [
    _clusters(
        "In dry-run",
        "Clusters in dry-run: no executor carries out their actions.",
        families.DRY_RUN,
        _WORTH_A_LOOK,
        "dry-run-forgotten",
    ),
    _clusters(
        "Paused",
        "Paused clusters: a control event holds all their actions.",
        families.PAUSED,
        _WORTH_A_LOOK,
        "paused",
    ),
    _clusters(
        "Failing",
        "Clusters where all unloads, or all splits, are held until a person resumes the cluster, "
        "because too many of the last ones failed or had no effect.",
        families.FAILING,
        _ALARMING,
        "failing",
    ),
    number(
        "Late copies",
        "Kafka clusters whose copies never end at their throttle, or will miss their deadline.",
        or_zero(f"count(({infeasible()}) or ({latest(families.COPIES_LATE, by='cluster')} == 1))"),
        steps=_WORTH_A_LOOK,
        runbook="throttle-infeasible",
        width=6,
    ),
]

_TODAY = [
    number(title, text, in_a_day(family, *matchers), steps=_WORTH_A_LOOK if runbook else [], runbook=runbook)
    for title, text, family, matchers, runbook in (
        (
            "Actions",
            "Actions published for executors to carry out.",
            families.ACTIONS,
            ['dry_run="false"'],
            "",
        ),
        (
            "Actions in dry-run",
            "Actions published only for you to look at.",
            families.ACTIONS,
            ['dry_run="true"'],
            "",
        ),
        (
            "Failed",
            "Actions that an executor could not carry out.",
            families.ACTION_RESULTS,
            ['outcome="failed"'],
            "action-failures",
        ),
        (
            "Moved again",
            "Unloads of a bundle that had already been unloaded in the 6 hours before.",
            families.UNLOADS_REPEATED,
            [],
            "oscillation",
        ),
        ("Dead letters", "Records that could not be used.", families.REJECTED, [], "dead-letters"),
        (
            "New queries",
            "Restarts of the streaming query, e.g. after a broker outage.",
            families.QUERY_RESTARTS,
            [],
            "restarts",
        ),
    )
]
"""How often something happened in 24 hours; with a runbook, 1 or more is orange, because it is worth a look."""

_ACTIONS = bars(
    "Actions over time",
    "Actions published, by cluster and kind.",
    each_step(families.ACTIONS, by="cluster, kind, dry_run")._replace(
        legend="{{cluster}} {{kind}} (dry-run {{dry_run}})"
    ),
    width=24,
)

_BALANCE = [
    graph(
        "Spread",
        "Standard deviation of the brokers' usage in each cluster.",
        latest(families.USAGE, 'resource="overall"', 'stat="stdev"', by="cluster"),
        unit=POINTS,
        runbook="unbalanced",
    ),
    graph(
        "Standing out",
        "Pairs or brokers that stood out in the last decided round; 0 is balanced.",
        latest(families.OUTLIERS, by="cluster"),
        runbook="unbalanced",
    ),
]

_HELD_BACK = [
    bars(
        "Bundles held back",
        "Bundles that were not moved although their broker fired, by reason; docs/understand/outcomes.md says "
        "what to do about each.",
        each_step(families.CANDIDATES, UNLOADS, _NOT_HELD, by="cluster, outcome"),
    ),
    bars(
        "Rounds",
        "Closed rounds by outcome: only decided ones can lead to actions.",
        each_step(families.ROUNDS, by="outcome"),
        runbook="not-deciding",
    ),
]
