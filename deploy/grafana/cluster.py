"""Cluster: load of the fleet over time, how far it is from firing, what was done about it and with what effect."""

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.models import common, dashboard, units

from deploy.grafana.panels import POINTS, WIDTH, bars, frame, graph
from deploy.grafana.queries import SPLITS, UNLOADS, age, each_step, latest, rate, share_of_time
from streaming.contract import families

_NOT_AS_DECIDED = "ineffective|landed-elsewhere"
"""Kinds of findings about actions that succeeded."""
_NOT_WANTED = "acted|need-met|no-traffic|too-big"
"""Outcomes of bundles that moved, or that the policy did not want to move."""


def build() -> dashboard.Dashboard:
    """The dashboard of one cluster, or of a few beside each other."""
    return frame(
        "trimtab-cluster",
        "trimtab / Cluster",
        "Load of the fleet over time, how far it is from firing, which actions were taken, and what effect "
        "they had.",
        ("Load", _LOAD),
        ("How far from firing", _FIRING),
        ("Decisions", _DECISIONS),
        ("Splits", _SPLITS),
        ("Did it help?", _HELP),
        ("Effect", _EFFECT),
        ("Input", _INPUT),
        annotated=True,
    )


_LOAD = [
    graph(
        "Usage",
        "Weighted maximum of each broker's resources: the mean over the brokers, the highest, and the "
        "standard deviation.",
        latest(families.USAGE, 'resource="overall"', by="cluster, stat"),
        unit=POINTS,
        runbook="unbalanced",
    ),
    graph(
        "Usage by resource",
        "Mean over the brokers that measured it. A resource that no broker measures is absent.",
        latest(families.USAGE, 'resource!="overall"', 'stat="mean"', by="cluster, resource"),
        unit=POINTS,
    ),
    graph(
        "Usage by broker",
        "Each broker of the last round; of more than 100 the 100 heaviest. On Kafka the larger of network traffic in and out, where "
        "[kafka.capacity] is declared. `trimtab status --brokers` says more about each.",
        latest(families.BROKER_USAGE, by="cluster, broker"),
        unit=POINTS,
        width=WIDTH,
    ).legend(
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT)
        .calcs(["lastNotNull"])
        .sort_by("Last *")
        .sort_desc(True)
    ),
]

_FIRING = [
    graph(
        "Difference and threshold",
        "The largest difference in the last decided round, and the threshold that it is compared with.",
        latest(families.DIFFERENCE, by="cluster", word="difference"),
        latest(families.THRESHOLD, by="cluster", word="threshold"),
        unit=POINTS,
        least=None,
        width=8,
    ),
    graph(
        "Hit counts",
        "Rounds in which that pair has stood out so far, and the number of rounds after which it fires. "
        "Empty for a policy without hit counts.",
        latest(families.HIT_COUNT, by="cluster", word="hits"),
        latest(families.NEEDED_HIT_COUNT, by="cluster", word="needed"),
        width=8,
    ),
    graph(
        "Standing out",
        "Pairs or brokers that stood out in the last decided round; 0 is balanced.",
        latest(families.OUTLIERS, by="cluster"),
        runbook="unbalanced",
        width=8,
    ),
]

_DECISIONS = [
    bars(
        "Pairs or brokers",
        "Pairs or brokers that the policy examined, by outcome.",
        each_step(families.EXAMINED, by="cluster, outcome"),
        width=8,
    ),
    bars(
        "Bundles",
        "Bundles of brokers that fired, by outcome.",
        each_step(families.CANDIDATES, UNLOADS, by="cluster, outcome"),
        width=8,
    ),
    graph(
        "Mode",
        "1 while in dry-run, while paused, or while held because too many actions failed or had no effect.",
        latest(families.DRY_RUN, by="cluster", word="dry-run"),
        latest(families.PAUSED, by="cluster", word="paused"),
        latest(families.FAILING, by="cluster", word="failing"),
        runbook="paused",
        width=8,
    ),
]

_SPLITS = [
    bars(
        "Bundles that stand out",
        "Bundles that are above a limit and that a split could bring below it, by outcome.",
        each_step(families.CANDIDATES, SPLITS, by="cluster, outcome"),
    ),
    graph(
        "Beyond help",
        "Findings of the last round: problems that no action can solve, and what you should know. The "
        "summary and `trimtab status` have the advice.",
        latest(families.FINDINGS, f'kind!~"{_NOT_AS_DECIDED}"', by="cluster, kind"),
    ),
]

_HELP = [
    graph(
        "Gained",
        "Mean of the last ten unloads that settled within the hour: how far the usage of the more used "
        "broker should have fallen (expected) and fell (achieved), and how far both brokers are from "
        "what was expected (error).",
        latest(families.PROMISED_GAIN, by="cluster, effect"),
        latest(families.PROMISE_ERROR, by="cluster", word="error"),
        unit=POINTS,
        least=None,
        runbook="no-effect",
    ),
    bars(
        "Promises",
        "Unloads that have settled. Kept: their brokers came closer to each other by at least half of "
        "what was expected.",
        each_step(families.PROMISES, by="cluster, outcome"),
        runbook="no-effect",
    ),
    graph(
        "Unbalanced",
        "Share of the hour before in which a pair or a broker stood out by the thresholds of the policy.",
        share_of_time(families.OUTLIERS, by="cluster"),
        unit=units.PercentUnit,
        runbook="unbalanced",
    ),
    bars(
        "Held back",
        "Bundles that were to move and were held back, by what held them. `trimtab rounds show` has their names.",
        each_step(families.CANDIDATES, UNLOADS, f'outcome!~"{_NOT_WANTED}"', by="cluster, outcome"),
    ),
]

_EFFECT = [
    graph(
        "Messages: expected and achieved",
        "Traffic that the last judged unloads should have taken from their brokers (expected), and "
        "traffic that those brokers had lost by then (achieved). Traffic changes by itself too, so look "
        "at the trend.",
        latest(families.UNLOADED_MESSAGES, by="cluster, effect"),
        unit=units.MessagesPerSecond,
        least=None,
        runbook="no-effect",
    ),
    graph(
        "Bytes: expected and achieved",
        "The same in bytes.",
        latest(families.UNLOADED_BYTES, by="cluster, effect"),
        unit=units.BytesPerSecondSI,
        least=None,
        runbook="no-effect",
    ),
    bars(
        "Results",
        "Results of actions, as executors reported them.",
        each_step(families.ACTION_RESULTS, by="cluster, outcome"),
        runbook="action-failures",
    ),
    bars(
        "Moved again",
        "Unloads of a bundle that had already been unloaded in the 6 hours before. Same: the bundle is "
        "still, or again, at the broker that it should have left. Other: it is at another broker and is "
        "passed on.",
        each_step(families.UNLOADS_REPEATED, by="cluster, source"),
        runbook="oscillation",
    ),
    graph(
        "Succeeded, but not as decided",
        "Actions in the last round's findings: they had no effect, so their bundles are left alone for "
        "ineffective_rest_s, or their bundles landed at another broker.",
        latest(families.FINDINGS, f'kind=~"{_NOT_AS_DECIDED}"', by="cluster, kind"),
        runbook="ineffective",
    ),
]

_INPUT = [
    graph(
        "Brokers",
        "Brokers of the last round: reporting, missing although they reported lately, or excluded by "
        "the settings.",
        latest(families.BROKERS, by="cluster, state"),
        runbook="not-deciding",
        width=8,
    ),
    graph(
        "Age",
        "Age of the oldest report at the end of the last round, and time since the end of the last round.",
        latest(families.OLDEST_REPORT_AGE, by="cluster", word="oldest report"),
        age(families.LAST_ROUND_END, by="cluster", word="last round"),
        unit=units.Seconds,
        runbook="no-reports",
        width=8,
    ),
    graph(
        "Events",
        "Input events, by result.",
        rate(families.EVENTS, by="cluster, outcome"),
        unit=units.CountsPerSecond,
        runbook="no-reports",
        width=8,
    ),
]
