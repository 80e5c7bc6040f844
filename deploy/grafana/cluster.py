"""Cluster: load of the fleet over time, how far it is from firing, what was done about it and with what effect."""

from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.panels import POINTS, Query, frame, graph
from deploy.grafana.queries import SPLITS, UNLOADS, age, each_step, latest, rate, share_of_time
from streaming.contract import families

_OVERALL = 'resource="overall"'
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
        ("Load", _load()),
        ("How far from firing", _firing()),
        ("Decisions", _decisions()),
        ("Splits", _splits()),
        ("Did it help?", _help()),
        ("Effect", _effect()),
        ("Input", _input()),
        annotated=True,
    )


def _load() -> list[Graph]:
    return [
        graph(
            "Usage",
            "Weighted maximum of each broker's resources: the mean over the brokers, the highest, and the "
            "standard deviation.",
            Query(latest(families.BROKER_USAGE, _OVERALL, by="cluster, stat"), "{{cluster}} {{stat}}"),
            unit=POINTS,
            runbook="unbalanced",
        ),
        graph(
            "Usage by resource",
            "Mean over the brokers that measured it. A resource that no broker measures is absent.",
            Query(
                latest(families.BROKER_USAGE, 'resource!="overall"', 'stat="mean"', by="cluster, resource"),
                "{{cluster}} {{resource}}",
            ),
            unit=POINTS,
        ),
    ]


def _firing() -> list[Graph]:
    return [
        graph(
            "Difference and threshold",
            "The largest difference in the last decided round, and the threshold that it is compared with.",
            Query(latest(families.DIFFERENCE, by="cluster"), "{{cluster}} difference"),
            Query(latest(families.THRESHOLD, by="cluster"), "{{cluster}} threshold"),
            unit=POINTS,
            least=None,
            width=8,
        ),
        graph(
            "Hit counts",
            "Rounds in which that pair has stood out so far, and the number of rounds after which it fires. "
            "Empty for a policy without hit counts.",
            Query(latest(families.HIT_COUNT, by="cluster"), "{{cluster}} hits"),
            Query(latest(families.NEEDED_HIT_COUNT, by="cluster"), "{{cluster}} needed"),
            unit=units.Short,
            width=8,
        ),
        graph(
            "Standing out",
            "Pairs or brokers that stood out in the last decided round; 0 is balanced.",
            Query(latest(families.OUTLIERS, by="cluster"), "{{cluster}}"),
            unit=units.Short,
            runbook="unbalanced",
            width=8,
        ),
    ]


def _decisions() -> list[Graph]:
    return [
        graph(
            "Pairs or brokers",
            "Pairs or brokers that the policy examined, by outcome.",
            Query(each_step(families.EXAMINED, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            width=8,
        ),
        graph(
            "Bundles",
            "Bundles of brokers that fired, by outcome.",
            Query(each_step(families.CANDIDATES, UNLOADS, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            width=8,
        ),
        graph(
            "Mode",
            "1 while in dry-run, while paused, or while held because too many actions failed or had no effect.",
            Query(latest(families.DRY_RUN, by="cluster"), "{{cluster}} dry-run"),
            Query(latest(families.PAUSED, by="cluster"), "{{cluster}} paused"),
            Query(latest(families.FAILING, by="cluster"), "{{cluster}} failing"),
            unit=units.Short,
            runbook="paused",
            width=8,
        ),
    ]


def _splits() -> list[Graph]:
    return [
        graph(
            "Bundles that stand out",
            "Bundles that are above a limit and that a split could bring below it, by outcome.",
            Query(each_step(families.CANDIDATES, SPLITS, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
        ),
        graph(
            "Beyond help",
            "Findings of the last round: problems that no action can solve, and what you should know. The "
            "summary and `trimtab status` have the advice.",
            Query(
                latest(families.FINDINGS, f'kind!~"{_NOT_AS_DECIDED}"', by="cluster, kind"),
                "{{cluster}} {{kind}}",
            ),
            unit=units.Short,
        ),
    ]


def _effect() -> list[Graph]:
    return [
        *_expected_and_achieved(),
        *_results(),
        _not_as_decided(),
    ]


def _help() -> list[Graph]:
    return [
        graph(
            "Gained",
            "Mean of the last ten unloads that settled within the hour: how far the usage of the more used "
            "broker should have fallen (expected) and fell (achieved), and how far both brokers are from "
            "what was expected (error).",
            Query(latest(families.PROMISED_GAIN, by="cluster, effect"), "{{cluster}} {{effect}}"),
            Query(latest(families.PROMISE_ERROR, by="cluster"), "{{cluster}} error"),
            unit=POINTS,
            least=None,
            runbook="no-effect",
        ),
        graph(
            "Promises",
            "Unloads that have settled. Kept: their brokers came closer to each other by at least half of "
            "what was expected.",
            Query(each_step(families.PROMISES, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="no-effect",
        ),
        graph(
            "Unbalanced",
            "Share of the hour before in which a pair or a broker stood out by the thresholds of the policy.",
            Query(share_of_time(families.OUTLIERS, by="cluster"), "{{cluster}}"),
            unit=units.PercentUnit,
            runbook="unbalanced",
        ),
        graph(
            "Held back",
            "Bundles that were to move and were held back, by what held them. `trimtab rounds show` has their names.",
            Query(
                each_step(families.CANDIDATES, UNLOADS, f'outcome!~"{_NOT_WANTED}"', by="cluster, outcome"),
                "{{cluster}} {{outcome}}",
            ),
            unit=units.Short,
            stacked=True,
        ),
    ]


def _expected_and_achieved() -> list[Graph]:
    return [
        graph(
            "Messages: expected and achieved",
            "Traffic that the last judged unloads should have taken from their brokers (expected), and "
            "traffic that those brokers had lost by then (achieved). Traffic changes by itself too, so look "
            "at the trend.",
            Query(latest(families.UNLOADED_MESSAGES, by="cluster, effect"), "{{cluster}} {{effect}}"),
            unit=units.MessagesPerSecond,
            least=None,
            runbook="no-effect",
        ),
        graph(
            "Bytes: expected and achieved",
            "The same in bytes.",
            Query(latest(families.UNLOADED_BYTES, by="cluster, effect"), "{{cluster}} {{effect}}"),
            unit=units.BytesPerSecondSI,
            least=None,
            runbook="no-effect",
        ),
    ]


def _results() -> list[Graph]:
    return [
        graph(
            "Results",
            "Results of actions, as executors reported them.",
            Query(each_step(families.ACTION_RESULTS, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="action-failures",
        ),
        graph(
            "Moved again",
            "Unloads of a bundle that had already been unloaded in the 6 hours before. Same: the bundle is "
            "still, or again, at the broker that it should have left. Other: it is at another broker and is "
            "passed on.",
            Query(each_step(families.REPEATED_UNLOADS, by="cluster, source"), "{{cluster}} {{source}}"),
            unit=units.Short,
            stacked=True,
            runbook="oscillation",
        ),
    ]


def _not_as_decided() -> Graph:
    return graph(
        "Succeeded, but not as decided",
        "Actions in the last round's findings: they had no effect, so their bundles are left alone for "
        "ineffective_rest_s, or their bundles landed at another broker.",
        Query(
            latest(families.FINDINGS, f'kind=~"{_NOT_AS_DECIDED}"', by="cluster, kind"),
            "{{cluster}} {{kind}}",
        ),
        unit=units.Short,
        runbook="ineffective",
    )


def _input() -> list[Graph]:
    return [
        graph(
            "Brokers",
            "Brokers of the last round: reporting, missing although they reported lately, or excluded by "
            "the settings.",
            Query(latest(families.BROKERS, by="cluster, state"), "{{cluster}} {{state}}"),
            unit=units.Short,
            runbook="not-deciding",
            width=8,
        ),
        graph(
            "Age",
            "Age of the oldest report at the end of the last round, and time since the end of the last "
            "round.",
            Query(latest(families.OLDEST_REPORT_AGE, by="cluster"), "{{cluster}} oldest report"),
            Query(age(families.LAST_ROUND_END, by="cluster"), "{{cluster}} last round"),
            unit=units.Seconds,
            runbook="no-reports",
            width=8,
        ),
        graph(
            "Events",
            "Input events, by result.",
            Query(rate(families.EVENTS, by="cluster, result"), "{{cluster}} {{result}}"),
            unit=units.CountsPerSecond,
            runbook="no-reports",
            width=8,
        ),
    ]
