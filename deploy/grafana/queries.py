"""PromQL out of metric families: selectors whose metric and labels exist.

Every selector of a family with a `cluster` label follows the dashboard's variable of that name.
"""

import re

from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.metrics import SPLIT_POLICY

RATE = "$__rate_interval"
"""Grafana's: at least four scrapes, so that a rate never falls between two."""
STEP = "$__interval"
"""Grafana's: from one point of a graph to the next."""
STEP_S = "$__interval_ms / 1000"
DAY_S = 86_400
_UNSEEN_S = 600
"""How long a series may be out of sight, or a process have counted nothing after its start, and each_step misses none."""

_MATCHER = re.compile(r'(\w+)(=|!=|=~|!~)"[^"]*"')
UNLOADS, SPLITS = f'policy!="{SPLIT_POLICY}"', f'policy="{SPLIT_POLICY}"'
"""Candidates of the two kinds of action."""
_OF_CLUSTER = 'cluster=~"$cluster"'


def select(family: Family, *matchers: str, sample: str = "") -> str:
    """A selector such as `trimtab_rounds_total{cluster=~"$cluster",outcome="decided"}`.

    ``sample`` is the part of a histogram. Raises `ValueError` for a label or a sample the family does not have.
    """
    name = f"{family.name}_{sample}" if sample else family.name
    if name not in family.samples:
        raise ValueError(f"{family.name} is a {family.kind}: it has {', '.join(family.samples)}, not {name}")
    for matcher in matchers:
        found = _MATCHER.fullmatch(matcher)
        if found is None or found[1] not in family.labels:
            labels = ", ".join(family.labels) or "no labels"
            raise ValueError(f"{matcher} does not select from {family.name}, which has {labels}")
    parts = [_OF_CLUSTER, *matchers] if "cluster" in family.labels else matchers
    return f"{name}{{{','.join(parts)}}}" if parts else name


def each_step(family: Family, *matchers: str, by: str) -> str:
    """How much a counter rose from each point of a graph to the next, summed ``by`` labels; nothing where it did not.

    `increase` would extrapolate, show one event in several bars of a short range, and leave out what a new process had
    counted before it was looked at first. What is counted while nobody looks is shown by the next point, within ten
    minutes.
    """
    counter = select(family, *matchers)
    rise = f"{counter} - last_over_time({counter}[{_UNSEEN_S}s] offset {STEP}) >= 0"
    began, new = (
        _of_processes(counter, since_s=since_s) for since_s in (STEP_S, f"({_UNSEEN_S} + {STEP_S})")
    )
    return f"sum by ({by}) ({began} or {rise} or {new}) > 0"


def in_a_day(family: Family, *matchers: str) -> str:
    """How often something was counted in the last 24 hours; of a process whose first start was in them, all it counted."""
    counter, start = select(family, *matchers), select(families.START)
    began = _of_processes(counter, since_s=str(DAY_S))
    once = f"{began} unless on (job, instance) changes({start}[{DAY_S}s]) > 0"
    return or_zero(f"round(sum(({once}) or increase({counter}[{DAY_S}s])))")


def share(family: Family, matcher: str, *, over: str) -> str:
    """The part of what a counter rose in ``over`` that matches; nothing where it did not rise."""
    part, whole = (f"sum(increase({select(family, *which)}[{over}]))" for which in ((matcher,), ()))
    return f"{part} / ({whole} > 0)"


def _of_processes(counter: str, *, since_s: str) -> str:
    """A counter of processes that began within this time: from 0 on."""
    return f"({counter} and on (job, instance) {select(families.START)} > time() - {since_s})"


def rate(family: Family, *matchers: str, by: str, sample: str = "") -> str:
    """How fast a counter rises, a second, summed (``by`` labels)."""
    return f"sum by ({by}) (rate({select(family, *matchers, sample=sample)}[{RATE}]))"


def latest(family: Family, *matchers: str, by: str) -> str:
    """A gauge ``by`` labels; while two controllers overlap, the larger."""
    return f"max by ({by}) ({select(family, *matchers)})"


def infeasible() -> str:
    """Clusters whose reassignment never ends at the rates in force; one where that is unknown is not among them."""
    return f"min by (cluster) ({select(families.THROTTLE_FEASIBLE)}) == 0"


def quantile(family: Family, q: float) -> str:
    """A quantile of a histogram over all instances, e.g. 0.95."""
    return f"histogram_quantile({q:g}, {rate(family, by='le', sample='bucket')})"


def age(family: Family, *, by: str) -> str:
    """Seconds since a timestamp."""
    return f"time() - {latest(family, by=by)}"


def or_word(expression: str, label: str, word: str) -> str:
    """The same, one series with a word as its label where there is none: a panel of names says it."""
    return f'{expression} or on () label_replace(vector(0), "{label}", "{word}", "", "")'


def or_zero(expression: str) -> str:
    """The same, 0 where there is nothing to sum: for sums only, a gauge that is unknown stays unknown."""
    return f"{expression} or vector(0)"
