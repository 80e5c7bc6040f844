"""PromQL made from metric families, so that the metric and the labels of a selector exist.

Every selector of a family with a `cluster` label follows the dashboard's variable of that name.
"""

import re
from typing import NamedTuple

from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.metrics import SPLIT_POLICY

RATE = "$__rate_interval"
"""Grafana's variable: at least four scrape intervals, so that a rate never falls between two scrapes."""
STEP = "$__interval"
"""Grafana's variable: the time from one point of a graph to the next."""
STEP_S = "$__interval_ms / 1000"
DAY_S = 86_400
_UNSEEN_S = 600
"""Seconds that a series may be missing, or that a process may count nothing after its start, without a gap in ``each_step``."""

_MATCHER = re.compile(r'(\w+)(=|!=|=~|!~)"[^"]*"')
UNLOADS, SPLITS = f'policy!="{SPLIT_POLICY}"', f'policy="{SPLIT_POLICY}"'
"""Candidates of the two kinds of action."""
_OF_CLUSTER = 'cluster=~"$cluster"'


class Query(NamedTuple):
    """One PromQL expression and the name that the legend gives its series; in another expression it is the expression."""

    expr: str
    legend: str = ""

    def __str__(self) -> str:
        return self.expr


def _name(by: str, word: str) -> str:
    """The legend of series ``by`` labels: the values of the labels, and a word."""
    return " ".join([*(f"{{{{{label}}}}}" for label in by.split(", ")), *([word] if word else [])])


def select(family: Family, *matchers: str, sample: str = "") -> str:
    """A selector such as `trimtab_rounds_total{cluster=~"$cluster",outcome="decided"}`.

    ``sample`` is the part of a histogram. Raises `ValueError` for a label or a sample the family does not have.
    """
    name = f"{family.name}_{sample}" if sample else family.name
    if name not in family.samples:
        raise ValueError(f"{family.name} is a {family.kind}: it has {', '.join(family.samples)}, not {name}")
    for matcher in matchers:
        match = _MATCHER.fullmatch(matcher)
        if match is None or match[1] not in family.labels:
            labels = ", ".join(family.labels) or "no labels"
            raise ValueError(f"{matcher} does not select from {family.name}, which has {labels}")
    parts = [_OF_CLUSTER, *matchers] if "cluster" in family.labels else matchers
    return f"{name}{{{','.join(parts)}}}" if parts else name


def each_step(family: Family, *matchers: str, by: str, word: str = "") -> Query:
    """How much a counter rose from each point of a graph to the next, summed ``by`` labels; nothing where it did not.

    `increase` would extrapolate, show one event in several bars of a short range, and leave out what a new process had
    counted before its first scrape. What is counted while a series is missing shows at the next point, if that is within
    ten minutes.
    """
    counter = select(family, *matchers)
    rise = f"{counter} - last_over_time({counter}[{_UNSEEN_S}s] offset {STEP}) >= 0"
    began, new = (
        _select_young_processes(counter, since_s=since_s) for since_s in (STEP_S, f"({_UNSEEN_S} + {STEP_S})")
    )
    return Query(f"sum by ({by}) ({began} or {rise} or {new}) > 0", _name(by, word))


def in_a_day(family: Family, *matchers: str) -> str:
    """How often something was counted in the last 24 hours; all counts of a process that first started within them."""
    counter, start = select(family, *matchers), select(families.START)
    began = _select_young_processes(counter, since_s=str(DAY_S))
    once = f"{began} unless on (job, instance) changes({start}[{DAY_S}s]) > 0"
    return or_zero(f"round(sum(({once}) or increase({counter}[{DAY_S}s])))")


def share(family: Family, matcher: str, *, over: str) -> str:
    """The share of a counter's rise in ``over`` that matches; no value if it did not rise."""
    part, whole = (f"sum(increase({select(family, *which)}[{over}]))" for which in ((matcher,), ()))
    return f"{part} / ({whole} > 0)"


def share_of_time(family: Family, *, by: str) -> Query:
    """The share of the hour before in which a gauge was above 0."""
    return Query(f"avg_over_time(({latest(family, by=by)} > bool 0)[1h:1m])", _name(by, ""))


def _select_young_processes(counter: str, *, since_s: str) -> str:
    """A counter, only of processes that started within ``since_s`` seconds, so it counted from 0 on."""
    return f"({counter} and on (job, instance) {select(families.START)} > time() - {since_s})"


def rate(family: Family, *, by: str, sample: str = "") -> Query:
    """How fast a counter rises, a second, summed (``by`` labels)."""
    return Query(f"sum by ({by}) (rate({select(family, sample=sample)}[{RATE}]))", _name(by, ""))


def latest(family: Family, *matchers: str, by: str, word: str = "") -> Query:
    """A gauge ``by`` labels; while two controllers overlap, the larger value."""
    return Query(f"max by ({by}) ({select(family, *matchers)})", _name(by, word))


def infeasible() -> str:
    """Clusters whose reassignment never ends at the rates in force, without those where that is unknown."""
    return f"min by (cluster) ({select(families.THROTTLE_FEASIBLE)}) == 0"


def quantile(family: Family, q: float) -> Query:
    """A quantile of a histogram over all instances, e.g. 0.95."""
    return Query(f"histogram_quantile({q:g}, {rate(family, by='le', sample='bucket')})", f"{100 * q:g} %")


def age(family: Family, *, by: str, word: str = "") -> Query:
    """Seconds since a timestamp."""
    return Query(f"time() - {latest(family, by=by)}", _name(by, word))


def or_word(expression: str | Query, label: str, word: str) -> str:
    """The expression, or where it has no series one with ``word`` as its label, for a panel that shows names."""
    return f'{expression} or on () label_replace(vector(0), "{label}", "{word}", "", "")'


def or_zero(expression: str) -> str:
    """The expression, or 0 where there is nothing to sum; for sums only, because a gauge that is unknown must stay unknown."""
    return f"{expression} or vector(0)"
