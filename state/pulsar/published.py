"""What the brokers of a round publish about themselves, in the columns that a policy sees."""

from collections.abc import Mapping, Sequence

import numpy as np

from policies.columns import Ints
from policies.shedding.view import NOT_OWNED, BundleTable, PublishedLoads
from state.events import Published
from state.pulsar.memory import WaitingReport
from state.round_settings import MS_PER_S


def published_loads(
    reports: Mapping[str, WaitingReport], names: Sequence[str], bundles: BundleTable, *, end_ms: int
) -> PublishedLoads | None:
    """What the brokers ``names``, with their ``bundles``, publish; None unless each of them published something."""
    found = [each for name in names if (each := reports[name].report.published) is not None]
    if not names or len(found) < len(names):
        return None
    rows = [_rows(each, bundles, broker) for broker, each in enumerate(found)]
    return PublishedLoads(
        usage_ratio=np.array([each.usage_ratio for each in found]),
        bytes_per_s=np.array([each.bytes_per_s for each in found]),
        age_s=np.array([(end_ms - each.updated_ms) / MS_PER_S for each in found]),
        top_starts=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        top_rows=np.concatenate(rows),
        top_bytes_per_s=np.concatenate([each.top_bytes_per_s for each in found]),
    )


def _rows(published: Published, bundles: BundleTable, broker: int) -> Ints:
    """Bundle row of each of a broker's heaviest bundles, ``NOT_OWNED`` for one that it does not own any more."""
    rows = (bundles.row_of(broker, name) for name in published.top_bundles)
    return np.array([NOT_OWNED if row is None else row for row in rows], dtype=np.int64)
