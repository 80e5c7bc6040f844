"""Reassignments: what a Kafka cluster still has to copy, until when, and whether the throttle lets it finish."""

from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.panels import ORANGE, RED, Query, Step, frame, graph, number
from deploy.grafana.queries import each_step, infeasible, latest, or_word, or_zero, select
from streaming.contract import families

NOTHING = "nothing moves"
NO_DATA = "no data"
NOTHING_OR_NO_DATA = f"{NOTHING}, or {NO_DATA}"
UNKNOWN = "unknown"
_LEFT = latest(families.REASSIGNMENT_LEFT, by="cluster")
_MOVES = f"{_LEFT} != 0"
"""Clusters where something moves, also those where the amount is unknown: NaN is not 0."""
_ROLE = "cluster, broker, role"
_LONGEST = "2d:1m"
"""How far back the start of a move is looked for, and in which steps."""


def build() -> dashboard.Dashboard:
    """The dashboard of Kafka clusters while partitions move."""
    return frame(
        "trimtab-reassignments",
        "trimtab / Reassignments",
        "What Kafka clusters still have to copy, how long it takes, and whether their throttles let it "
        "finish.",
        ("Now", _current_state()),
        ("Progress", _progress()),
        ("Rates", _rates()),
        ("Decisions", _decisions()),
    )


def _current_state() -> list[Stat]:
    return [
        *_until_done(),
        *_in_trouble(),
    ]


def _until_done() -> list[Stat]:
    return [
        number(
            "Left",
            "Bytes that still have to be copied to moving replicas.",
            Query(_LEFT, "{{cluster}}"),
            unit=units.BytesIEC,
            names={"0": NOTHING},
            unknown=UNKNOWN,
            no_value=NO_DATA,
        ),
        number(
            "Done in",
            "ETA of the last round. Also unknown where the move never ends at the rates in force.",
            Query(_or_still(_while_moving(latest(families.REASSIGNMENT_ETA, by="cluster"))), "{{cluster}}"),
            unit=units.Seconds,
            names={"0": NOTHING},
            unknown=UNKNOWN,
            no_value=NO_DATA,
            runbook="reassignment-late",
        ),
        number(
            "Moves for",
            "Time since the move began, to the minute. Unknown if it began more than two days ago, or "
            "before Prometheus had data.",
            Query(_or_still(_elapsed()), "{{cluster}}"),
            unit=units.Seconds,
            names={"0": NOTHING},
            unknown=UNKNOWN,
            no_value=NO_DATA,
            runbook="reassignment-late",
        ),
        number(
            "Last to finish",
            "The bottleneck: the role and broker that finish last. There is none while nothing moves, while "
            "the move never ends, or while a number is unknown.",
            Query(
                or_word(latest(families.REASSIGNMENT_BOTTLENECK, by=_ROLE), "role", "none"),
                "{{cluster}} {{role}} {{broker}}",
            ),
            unit=units.Short,
            named=True,
        ),
    ]


def _in_trouble() -> list[Stat]:
    return [
        number(
            "Never end",
            "Clusters whose throttle is infeasible: the rate that the network leaves for a role is not "
            "above the minimum.",
            Query(or_zero(f"count({infeasible()})")),
            unit=units.Short,
            steps=[Step(1, RED)],
            runbook="throttle-infeasible",
        ),
        number(
            "Late",
            "Clusters whose move will miss its deadline, or does not catch up.",
            Query(or_zero(f"sum({latest(families.REASSIGNMENT_LATE, by='cluster')})")),
            unit=units.Short,
            steps=[Step(1, ORANGE)],
            runbook="reassignment-late",
        ),
        number(
            "Broken",
            "Partitions whose copy cannot go on before a broker is back, in all clusters.",
            Query(or_zero(f"sum({latest(families.REASSIGNMENT_BROKEN, by='cluster')} > 0)")),
            unit=units.Short,
            steps=[Step(1, RED)],
            runbook="reassignment-broken",
        ),
    ]


def _while_moving(expression: str) -> str:
    return f"{expression} and on (cluster) ({_MOVES})"


def _or_still(expression: str) -> str:
    """The expression, or 0 for a cluster where nothing moves."""
    return f"{expression} or {_LEFT} == 0"


def _elapsed() -> str:
    still = f"timestamp({_LEFT} == 0)"
    known = _while_moving(f"(time() - max_over_time(({still})[{_LONGEST}]))")
    return f"{known} or NaN * ({_MOVES})"


def _progress() -> list[Graph]:
    return [
        graph(
            "Bytes left",
            "Bytes that still have to be copied to moving replicas. Writes add to them: with a throttle "
            "that is too low they never fall to 0.",
            Query(_LEFT, "{{cluster}}"),
            unit=units.BytesIEC,
            runbook="throttle-infeasible",
            no_value=NO_DATA,
        ),
        graph(
            "ETA against elapsed",
            "Time that the rest will take, and time that the move has taken so far. If the move is on time, "
            "its ETA falls by a minute every minute; if the ETA stays or rises, the move falls behind.",
            Query(_while_moving(latest(families.REASSIGNMENT_ETA, by="cluster")), "{{cluster}} ETA"),
            Query(_elapsed(), "{{cluster}} elapsed"),
            unit=units.Seconds,
            runbook="reassignment-late",
            no_value=NOTHING_OR_NO_DATA,
        ),
    ]


def _rates() -> list[Graph]:
    rate, minimum = families.THROTTLE_RATE, families.THROTTLE_MINIMUM
    return [
        *(
            graph(
                title,
                f"{text} The rate must stay above the minimum, or the move never ends.",
                Query(latest(rate, f'role="{role}"', by="cluster, broker"), "{{cluster}} {{broker}} rate"),
                Query(
                    latest(minimum, f'role="{role}"', by="cluster, broker"), "{{cluster}} {{broker}} minimum"
                ),
                unit=units.BytesPerSecondSI,
                runbook="throttle-infeasible",
                no_value=NOTHING_OR_NO_DATA,
            )
            for title, role, text in _SIDES
        ),
        graph(
            "Rate to minimum",
            "Rate divided by minimum, by role and broker. At 1 (the line) and below, the move never ends.",
            Query(
                f"{latest(rate, by=_ROLE)} / ({latest(minimum, by=_ROLE)} > 0)",
                "{{cluster}} {{role}} {{broker}}",
            ),
            unit=units.Short,
            steps=[Step(1, RED)],
            runbook="throttle-infeasible",
            no_value=NOTHING_OR_NO_DATA,
            width=24,
        ),
    ]


_SIDES = (
    ("Sources", "leader", "Throttle of the brokers that send, as leaders of what moves."),
    ("Destinations", "follower", "Throttle of the brokers that receive, as followers of what moves."),
)


def _decisions() -> list[Graph]:
    return [
        graph(
            "Feasible and late",
            "Feasible: 1 where the move ends at the rates in force, 0 where it never does. Late: 1 where it will miss "
            "its deadline.",
            Query(f"min by (cluster) ({select(families.THROTTLE_FEASIBLE)})", "{{cluster}} feasible"),
            Query(latest(families.REASSIGNMENT_LATE, by="cluster"), "{{cluster}} late"),
            unit=units.Short,
            runbook="reassignment-late",
            no_value=NOTHING_OR_NO_DATA,
        ),
        graph(
            "Throttles",
            "Actions published that set, change or take off a throttle.",
            Query(
                each_step(families.ACTIONS, 'kind="throttle"', by="cluster, dry_run"),
                "{{cluster}} (dry-run {{dry_run}})",
            ),
            unit=units.Short,
            stacked=True,
        ),
        graph(
            "Not as decided",
            "Lists and rates of trimtab that were changed or removed from outside while they are needed, "
            "and decisions in a row that were not carried out.",
            Query(latest(families.THROTTLE_CHANGED, by="cluster"), "{{cluster}} changed"),
            Query(latest(families.THROTTLE_FAILURES, by="cluster"), "{{cluster}} not carried out"),
            unit=units.Short,
            runbook="throttle-not-set",
            no_value=NOTHING_OR_NO_DATA,
            width=24,
        ),
    ]
