"""PromQL out of metric families: selectors whose metric and labels exist.

Every selector of a family with a `cluster` label follows the dashboard's variable of that name.
"""

import re

from streaming import families
from streaming.families import Family
from streaming.metrics import SPLIT_POLICY

RATE = "$__rate_interval"
"""Grafana's: at least four scrapes, so that a rate never falls between two."""
DAY = "24h"

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


def increase(family: Family, *matchers: str, over: str = RATE, by: str = "", sample: str = "") -> str:
    """How much a counter rose in ``over``, summed (``by`` labels)."""
    return f"sum{_by(by)}(increase({select(family, *matchers, sample=sample)}[{over}]))"


def rate(family: Family, *matchers: str, by: str = "", sample: str = "") -> str:
    """How fast a counter rises, a second, summed (``by`` labels)."""
    return f"sum{_by(by)}(rate({select(family, *matchers, sample=sample)}[{RATE}]))"


def latest(family: Family, *matchers: str, by: str) -> str:
    """A gauge ``by`` labels; while two controllers overlap, the larger."""
    return f"max{_by(by)}({select(family, *matchers)})"


def infeasible() -> str:
    """Clusters whose reassignment never ends at the rates in force; one where that is unknown is not among them."""
    return f"min by (cluster) ({select(families.THROTTLE_FEASIBLE)}) == 0"


def quantile(family: Family, q: float) -> str:
    """A quantile of a histogram over all instances, e.g. 0.95."""
    return f"histogram_quantile({q:g}, {rate(family, by='le', sample='bucket')})"


def age(family: Family, *, by: str) -> str:
    """Seconds since a timestamp."""
    return f"time() - {latest(family, by=by)}"


def or_zero(expression: str) -> str:
    """The same, 0 where there is nothing to sum: for sums only, a gauge that is unknown stays unknown."""
    return f"{expression} or vector(0)"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
