"""Copies: what a Kafka cluster still has to copy, until when, and whether the throttle lets it finish."""

from typing import Any

from grafana_foundation_sdk.models import dashboard, units
from grafana_foundation_sdk.models.dashboard import Threshold

from deploy.grafana.panels import ORANGE, RED, bars, frame, graph, number
from deploy.grafana.queries import Query, each_step, infeasible, latest, or_word, or_zero, select
from streaming.contract import families

_NOTHING_OR_NO_DATA = "nothing is copied, or no data"
_WORDS: dict[str, Any] = {"names": {"0": "nothing is copied"}, "unknown": "unknown", "no_value": "no data"}
"""Words in place of 0, of NaN and of no series."""
_LEFT = latest(families.COPIES_LEFT, by="cluster")
_COPIES = f"{_LEFT} != 0"
"""Clusters where something is copied, also those where the amount is unknown: NaN is not 0."""
_ROLE = "cluster, broker, role"
_ROLE_LEGEND = "{{cluster}} {{role}} {{broker}}"
_LONGEST = "2d:1m"
"""How far back the start is looked for, and in which steps."""


def _while_copying(expression: str | Query) -> str:
    return f"{expression} and on (cluster) ({_COPIES})"


def _or_still(expression: str) -> Query:
    """The expression, or 0 for a cluster where nothing is copied."""
    return Query(f"{expression} or {_LEFT} == 0", "{{cluster}}")


_ETA = _while_copying(latest(families.COPIES_ETA, by="cluster"))
_SINCE_STILL = _while_copying(f"(time() - max_over_time((timestamp({_LEFT} == 0))[{_LONGEST}]))")
_ELAPSED = f"{_SINCE_STILL} or NaN * ({_COPIES})"


def build() -> dashboard.Dashboard:
    """The dashboard of Kafka clusters while something is copied."""
    return frame(
        "trimtab-copies",
        "trimtab / Copies",
        "What Kafka clusters still have to copy, how long it takes, and whether their throttles let it "
        "finish.",
        ("Now", _NOW),
        ("Progress", _PROGRESS),
        ("Rates", _RATES),
        ("Decisions", _DECISIONS),
    )


_NOW = [
    number(
        "Left",
        "Bytes that still have to be copied: by reassignments, to brokers that are back, and between disks.",
        _LEFT,
        unit=units.BytesIEC,
        **_WORDS,
    ),
    number(
        "Done in",
        "ETA of the last round. Also unknown where it never ends at its rates, or a broker that will recover is away.",
        _or_still(_ETA),
        unit=units.Seconds,
        runbook="copies-late",
        **_WORDS,
    ),
    number(
        "Copies for",
        "Time since copying began, to the minute. Unknown if it began more than two days ago, or "
        "before Prometheus had data.",
        _or_still(_ELAPSED),
        unit=units.Seconds,
        runbook="copies-late",
        **_WORDS,
    ),
    number(
        "Last to finish",
        "The bottleneck: the role and broker that finish last. There is none while nothing is copied, "
        "while it never ends, or while a number is unknown.",
        Query(or_word(latest(families.COPIES_BOTTLENECK, by=_ROLE), "role", "none"), _ROLE_LEGEND),
        named=True,
    ),
    number(
        "Never end",
        "Clusters whose throttle is infeasible: the rate that the network leaves for a role is not "
        "above the minimum.",
        or_zero(f"count({infeasible()})"),
        steps=[Threshold(1, RED)],
        runbook="throttle-infeasible",
    ),
    number(
        "Late",
        "Clusters whose copies will miss their deadline, or do not catch up.",
        or_zero(f"sum({latest(families.COPIES_LATE, by='cluster')})"),
        steps=[Threshold(1, ORANGE)],
        runbook="copies-late",
    ),
    number(
        "Broken",
        "Partitions whose copy cannot go on before a broker is back, in all clusters.",
        or_zero(f"sum({latest(families.COPIES_BROKEN, by='cluster')} > 0)"),
        steps=[Threshold(1, RED)],
        runbook="copies-broken",
    ),
]

_PROGRESS = [
    graph(
        "Copies by kind",
        "Replicas that a reassignment adds, that a broker brings up to date after it was away (or will), and that move between disks.",
        latest(families.COPIES, by="cluster, kind")._replace(legend="{{cluster}} {{kind}}"),
        no_value="no data",
        width=24,
    ),
    graph(
        "Bytes left",
        "Bytes that still have to be copied. Writes add to them: with a throttle "
        "that is too low they never fall to 0.",
        _LEFT,
        unit=units.BytesIEC,
        runbook="throttle-infeasible",
        no_value="no data",
    ),
    graph(
        "ETA against elapsed",
        "Time that the rest will take, and time that it has taken so far. If it is on time, "
        "its ETA falls by a minute every minute; if the ETA stays or rises, it falls behind.",
        Query(_ETA, "{{cluster}} ETA"),
        Query(_ELAPSED, "{{cluster}} elapsed"),
        unit=units.Seconds,
        runbook="copies-late",
        no_value=_NOTHING_OR_NO_DATA,
    ),
]

_RATES = [
    *(
        graph(
            title,
            f"{text} The rate must stay above the minimum, or it never ends.",
            latest(families.THROTTLE_RATE, f'role="{role}"', by="cluster, broker", word="rate"),
            latest(families.THROTTLE_MINIMUM, f'role="{role}"', by="cluster, broker", word="minimum"),
            unit=units.BytesPerSecondSI,
            runbook="throttle-infeasible",
            no_value=_NOTHING_OR_NO_DATA,
        )
        for title, role, text in (
            ("Sources", "leader", "Throttle of the brokers that send, as leaders of what is copied."),
            (
                "Destinations",
                "follower",
                "Throttle of the brokers that receive, as followers of what is copied.",
            ),
            ("Disks", "disk", "Throttle of the brokers that move replicas between their disks."),
        )
    ),
    graph(
        "Rate to minimum",
        "Rate divided by minimum, by role and broker. At 1 (the line) and below, it never ends.",
        Query(
            f"{latest(families.THROTTLE_RATE, by=_ROLE)} / ({latest(families.THROTTLE_MINIMUM, by=_ROLE)} > 0)",
            _ROLE_LEGEND,
        ),
        steps=[Threshold(1, RED)],
        runbook="throttle-infeasible",
        no_value=_NOTHING_OR_NO_DATA,
    ),
]

_DECISIONS = [
    graph(
        "Feasible and late",
        "Feasible: 1 where it ends at its rates, 0 where it never does. Late: 1 where it will miss "
        "its deadline.",
        Query(f"min by (cluster) ({select(families.THROTTLE_FEASIBLE)})", "{{cluster}} feasible"),
        latest(families.COPIES_LATE, by="cluster", word="late"),
        runbook="copies-late",
        no_value=_NOTHING_OR_NO_DATA,
    ),
    bars(
        "Throttles",
        "Actions published that set, change or take off a throttle.",
        each_step(families.ACTIONS, 'kind="throttle"', by="cluster, dry_run")._replace(
            legend="{{cluster}} (dry-run {{dry_run}})"
        ),
    ),
    graph(
        "Not as decided",
        "Lists and rates of trimtab that were changed or removed from outside while they are needed, "
        "and decisions in a row that were not carried out.",
        latest(families.THROTTLE_CHANGED, by="cluster", word="changed"),
        latest(families.THROTTLE_FAILURES, by="cluster", word="not carried out"),
        runbook="throttle-not-set",
        no_value=_NOTHING_OR_NO_DATA,
        width=24,
    ),
]
