"""Cluster: load of the fleet over time, how far it is from firing, what was done about it and with what effect."""

from grafana_foundation_sdk.builders.timeseries import Panel as Graph
from grafana_foundation_sdk.models import dashboard, units

from deploy.grafana.frame import frame
from deploy.grafana.panels import POINTS, Query, graph
from deploy.grafana.queries import SPLITS, UNLOADS, age, each_step, latest, rate
from streaming.contract import families

_OVERALL = 'resource="overall"'


def build() -> dashboard.Dashboard:
    """The dashboard of one cluster, or of a few beside each other."""
    return frame(
        "trimtab-cluster",
        "trimtab / Cluster",
        "Load of the fleet over time, how far it is from firing, what was done about it and with what effect.",
        ("Load", _load()),
        ("How far from firing", _firing()),
        ("Decisions", _decisions()),
        ("Splits", _splits()),
        ("Effect", _effect()),
        ("Input", _input()),
        annotated=True,
    )


def _load() -> list[Graph]:
    return [
        graph(
            "Usage",
            "Weighted maximum of each broker's resources: the mean over the brokers, the highest, and the spread "
            "(standard deviation).",
            Query(latest(families.BROKER_USAGE, _OVERALL, by="cluster, stat"), "{{cluster}} {{stat}}"),
            unit=POINTS,
            runbook="unbalanced",
        ),
        graph(
            "Usage by resource",
            "Mean over the brokers that measured it. What nobody measures is absent.",
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
            "What stands out most, and the threshold it is judged by.",
            Query(latest(families.DIFFERENCE, by="cluster"), "{{cluster}} difference"),
            Query(latest(families.THRESHOLD, by="cluster"), "{{cluster}} threshold"),
            unit=POINTS,
            least=None,
            width=8,
        ),
        graph(
            "Hit counts",
            "Rounds in which that pair stood out so far, and after how many it fires. Empty for a policy that counts none.",
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
            "What the policy looked at, by outcome.",
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
            "Bundles above a limit that a split could bring them below, by outcome.",
            Query(each_step(families.CANDIDATES, SPLITS, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
        ),
        graph(
            "Beyond help",
            "What no action can help, in the last round: a hot partition is one topic that is too much by itself.",
            Query(
                latest(families.FINDINGS, 'kind="hot-partition"', by="cluster, kind"), "{{cluster}} {{kind}}"
            ),
            unit=units.Short,
        ),
    ]


def _effect() -> list[Graph]:
    return [
        *_did_it_help(),
        *_expected_and_achieved(),
        *_results(),
        _not_as_decided(),
    ]


def _did_it_help() -> list[Graph]:
    return [
        graph(
            "Did it help?",
            "By how many points the more used broker of an unload should have fallen and fell, and how far its brokers are from "
            "what was expected: the mean of the last ten unloads that settled within the hour.",
            Query(latest(families.PROMISED_GAIN, by="cluster, effect"), "{{cluster}} {{effect}}"),
            Query(latest(families.PROMISE_ERROR, by="cluster"), "{{cluster}} error"),
            unit=POINTS,
            least=None,
            runbook="no-effect",
        ),
        graph(
            "Promises",
            "Unloads that have settled: kept where their brokers came at least half as much closer as they should have.",
            Query(each_step(families.PROMISES, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="no-effect",
        ),
    ]


def _expected_and_achieved() -> list[Graph]:
    return [
        graph(
            "Messages: expected and achieved",
            "Traffic that the unloads judged last were to take from their brokers, and what those brokers had lost by "
            "then. Traffic changes by itself too, so look at the trend.",
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
            "What executors reported of the actions.",
            Query(each_step(families.ACTION_RESULTS, by="cluster, outcome"), "{{cluster}} {{outcome}}"),
            unit=units.Short,
            stacked=True,
            runbook="action-failures",
        ),
        graph(
            "Moved again",
            "Unloads of a bundle that had been unloaded within the 6 hours before: again at the broker it was to leave "
            "(same), or passed on (other).",
            Query(each_step(families.REPEATED_UNLOADS, by="cluster, source"), "{{cluster}} {{source}}"),
            unit=units.Short,
            stacked=True,
            runbook="oscillation",
        ),
    ]


def _not_as_decided() -> Graph:
    return graph(
        "Succeeded, but not as decided",
        "Actions of the last round's findings: without effect, so that their bundles are left alone for "
        "ineffective_rest_s, or landed at another broker.",
        Query(latest(families.FINDINGS, 'kind!="hot-partition"', by="cluster, kind"), "{{cluster}} {{kind}}"),
        unit=units.Short,
        runbook="ineffective",
    )


def _input() -> list[Graph]:
    return [
        graph(
            "Brokers",
            "Brokers of the last round: reporting, missing though they reported lately, excluded by the settings.",
            Query(latest(families.BROKERS, by="cluster, state"), "{{cluster}} {{state}}"),
            unit=units.Short,
            runbook="not-deciding",
            width=8,
        ),
        graph(
            "Age",
            "Of the last round's oldest report at the round's end, and of the last round's end now.",
            Query(latest(families.OLDEST_REPORT_AGE, by="cluster"), "{{cluster}} oldest report"),
            Query(age(families.LAST_ROUND_END, by="cluster"), "{{cluster}} last round"),
            unit=units.Seconds,
            runbook="no-reports",
            width=8,
        ),
        graph(
            "Events",
            "Input events by how they ended.",
            Query(rate(families.EVENTS, by="cluster, result"), "{{cluster}} {{result}}"),
            unit=units.CountsPerSecond,
            runbook="no-reports",
            width=8,
        ),
    ]
