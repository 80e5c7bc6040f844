"""Bundles that hold this program's own topics: moving one disturbs the program itself, and moves next to no load.

Such a bundle is masked only while those topics carry at least half of its traffic, in messages and in bytes; with the
default names they lie beside users' topics, and a bundle that users make hot may move. The rates of the topics are as
old as the collector's last look, those of the bundles are running averages.
"""

import numpy as np

from policies.columns import Bools
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT
from state.facts import Facts
from state.pulsar.memory import Fleet

_SHARE_RATIO = 0.5


def carries_own_topics(fleet: Fleet, count: int, facts: Facts | None) -> Bools:
    """Which of the fleet's leading ``count`` bundles carry little but this program's own topics, (count,)."""
    found = np.zeros(count, dtype=np.bool_)
    if facts is None or not facts.own_topics:
        return found
    own = facts.own_topics
    named = np.fromiter(map(own.__contains__, fleet.bundles[:count]), dtype=np.bool_, count=count)
    for row in np.flatnonzero(named).tolist():
        messages, volume = own[fleet.bundles[row]]
        average = fleet.averages[row]
        found[row] = (
            messages + volume > 0
            and messages >= _SHARE_RATIO * (average[RATE_IN] + average[RATE_OUT])
            and volume >= _SHARE_RATIO * (average[THROUGHPUT_IN] + average[THROUGHPUT_OUT])
        )
    return found
