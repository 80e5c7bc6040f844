"""Everything that asks Prometheus for something, and what there is to ask for: the two sides that must agree."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

import promql_parser as promql
import yaml

from policies.throttle.roles import Role
from policies.usage import RESOURCES
from state.closing import Outcome
from state.controller import Result
from state.settings import PulsarSettings
from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.metrics import KNOWN_LABELS, SPLIT_POLICY
from streaming.executor.orders import SkipReason

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
RULES = ROOT / "deploy/prometheus"

TARGET_LABELS = frozenset({"job", "instance"})
"""Every scraped series has them."""
FOREIGN = {"up": TARGET_LABELS, "ALERTS": TARGET_LABELS | {"alertname", "alertstate", "severity"}}
"""Series that Prometheus makes itself."""
KNOWN_VALUES: Mapping[tuple[Family, str], frozenset[str]] = {
    (families.ROUNDS, "outcome"): frozenset(get_args(Outcome)),
    (families.EXAMINED, "outcome"): frozenset(KNOWN_LABELS.examined_outcomes),
    (families.CANDIDATES, "outcome"): frozenset(
        {*KNOWN_LABELS.candidate_outcomes, *KNOWN_LABELS.split_outcomes}
    ),
    (families.CANDIDATES, "policy"): frozenset(
        {*get_args(get_type_hints(PulsarSettings)["shedding_policy"]), SPLIT_POLICY}
    ),
    (families.FINDINGS, "kind"): frozenset(KNOWN_LABELS.finding_kinds),
    (families.ACTIONS, "kind"): frozenset(KNOWN_LABELS.action_kinds),
    (families.ACTIONS, "dry_run"): frozenset({"true", "false"}),
    (families.ACTION_RESULTS, "outcome"): frozenset(KNOWN_LABELS.result_outcomes),
    (families.UNLOADS_REPEATED, "source"): frozenset({"same", "other"}),
    (families.EVENTS, "type"): frozenset(KNOWN_LABELS.event_types),
    (families.EVENTS, "outcome"): frozenset(get_args(Result)),
    (families.USAGE, "resource"): frozenset(("overall", *RESOURCES)),
    (families.USAGE, "stat"): frozenset({"mean", "max", "stdev"}),
    (families.BROKERS, "state"): frozenset({"reporting", "missing", "excluded"}),
    (families.THROTTLE_RATE, "role"): frozenset(get_args(Role)),
    (families.THROTTLE_MINIMUM, "role"): frozenset(get_args(Role)),
    (families.COPIES_BOTTLENECK, "role"): frozenset(get_args(Role)),
    (families.REJECTED, "reason"): frozenset(KNOWN_LABELS.rejected_reasons),
    (families.EXECUTOR_SKIPS, "reason"): frozenset(get_args(SkipReason)),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression and where it stands."""

    where: str
    expr: str

    def filled(self, *, cluster: str = ".+", interval: str = "1m") -> str:
        """With Grafana's variables replaced, as it does before it asks."""
        known = {
            "$cluster": cluster,
            "$__rate_interval": interval,
            "$__interval_ms": str(_MS[interval[-1]] * int(interval[:-1])),
            "$__interval": interval,
        }
        return re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], self.expr)


_MS = {"m": 60_000, "h": 3_600_000}


def rules() -> list[dict[str, Any]]:
    """Recording and alerting rules."""
    groups = (yaml.safe_load(file.read_text())["groups"] for file in sorted(RULES.glob("*.rules.yml")))
    return [rule for found in groups for group in found for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Alerting rules by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def asked_by_rules() -> list[Asked]:
    """The expression of each rule."""
    return [Asked(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]


def asked_by_dashboards() -> list[Asked]:
    """The expression of every query and annotation."""
    return [asked for path in DASHBOARDS for asked in _asked_by(json.loads(path.read_text()))]


def _asked_by(board: dict[str, Any]) -> Iterator[Asked]:
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield Asked(f"{board['title']}: {panel['title']}", target["expr"])
    for annotation in board["annotations"].get("list", []):
        yield Asked(f"{board['title']}: annotation {annotation['name']}", annotation["expr"])


def _panels_of(board: str, *but: str) -> set[str]:
    found = {asked.where for asked in asked_by_dashboards() if asked.where.startswith(f"{board}: ")}
    return found - {f"{board}: {panel}" for panel in but}


KAFKA_ONLY = {
    *_panels_of("trimtab / Copies", "Never end", "Late", "Broken", "Last to finish"),
    *("TrimtabThrottleInfeasible", "TrimtabCopiesBroken"),
    *("TrimtabCopiesLate", "TrimtabThrottleNotSet"),
}
"""What only a Kafka cluster has something to say to, so that without one there is nothing."""
OF_PROGRAMS = {
    *_panels_of("trimtab / Executors and collectors"),
    *("TrimtabExecutorNotPolling", "TrimtabExecutorStumbling", "TrimtabCollectorStalled"),
}
"""What only an executor or a collector has something to say to."""


@dataclass(slots=True)
class Parts:
    """What an expression names."""

    selectors: list[promql.VectorSelector] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)
    """Labels that something is summed or matched by."""


def parts(expr: str) -> Parts:
    """Selectors and labels of an expression; fails for one that is no PromQL."""
    found = Parts()

    def visit(node: promql.Expr) -> bool:
        match node:
            case promql.VectorSelector():
                found.selectors.append(node)
            case promql.MatrixSelector():
                found.selectors.append(node.vector_selector)
            case promql.AggregateExpr() if node.modifier is not None:
                found.grouped |= set(node.modifier.labels)
            case promql.BinaryExpr() if node.modifier is not None:
                matching = node.modifier.matching
                found.grouped |= set(matching.labels if matching is not None else ())
            case _:
                pass
        return True

    promql.walk(promql.parse(expr), visit)
    return found


def known_samples() -> dict[str, frozenset[str]]:
    """Labels of every series there can be, by name."""
    every = [sample for family in families.FAMILIES for sample in family.samples.items()]
    ours = {name: TARGET_LABELS | set(labels) for name, labels in every}
    recording = [rule for rule in rules() if "record" in rule]
    recorded = {rule["record"]: frozenset(parts(rule["expr"]).grouped - {"le"}) for rule in recording}
    return {**FOREIGN, **ours, **recorded}


def problems(asked: Asked) -> list[str]:
    """What an expression names that does not exist: metrics, labels, values of labels."""
    samples = known_samples()
    named = parts(asked.filled())
    found = []
    available: set[str] = set()
    for selector in named.selectors:
        name = selector.name or ""
        if name not in samples:
            found.append(f"{asked.where}: no metric {name}")
            continue
        available |= samples[name]
        for matcher in selector.matchers.matchers:
            if matcher.name not in samples[name]:
                found.append(f"{asked.where}: {name} has no label {matcher.name}")
            found += [
                f"{asked.where}: {matcher.name} of {name} is never {value}"
                for value in _unknown_values(name, matcher)
            ]
    found += [
        f"{asked.where}: no series has the label {label}" for label in sorted(named.grouped - available)
    ]
    return found


def _unknown_values(name: str, matcher: promql.Matcher) -> list[str]:
    """Alternatives of a matcher that its label never has; a label without a list may have any."""
    known = {(family.name, label): values for (family, label), values in KNOWN_VALUES.items()}
    there = known.get((name, matcher.name))
    return [] if there is None else sorted(set(matcher.value.split("|")) - there)
