"""Why a throttle is decided, or is not, in words; the codes are those of messages and metrics."""

from collections.abc import Mapping

TRIGGERS: Mapping[str, str] = {
    "first-throttle": "the first throttle",
    "moves-joined": "more is copied than is throttled",
    "throttle-lost": "a throttle was taken off",
    "minimum-rose": "more has to flow",
    "deadline-at-risk": "the deadline is at risk",
    "headroom": "the network has room for more",
    "over-cap": "rates are above what the network leaves",
    "under-min-isr": "a partition is under min.insync.replicas",
    "traffic-fell": "less traffic needs less",
    "reports-back": "reports are back",
    "moves-left": "some copies have ended",
    "stale-reports": "reports are missing",
    "finished": "nothing is copied any more",
}
OUTCOMES: Mapping[str, str] = {
    "decided": "decided",
    "held": "held",
    "infeasible": "the network leaves less than the minimum",
    "nothing-moves": "nothing is copied",
    "resting": "it changed a moment ago",
    "stale": "reports are missing, and it stays",
    "unchanged": "it is as it should be",
    "unknown": "not enough is known for one",
}
