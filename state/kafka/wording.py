"""Why a throttle is decided, or is not, in words; the codes are those of messages and metrics."""

from collections.abc import Mapping

TRIGGERS: Mapping[str, str] = {
    "first-throttle": "the first throttle",
    "moves-joined": "more is copied than is throttled",
    "throttle-lost": "a throttle that is needed is not there",
    "minimum-rose": "more has to flow",
    "deadline-at-risk": "the deadline is at risk",
    "headroom": "the network has room for more",
    "over-cap": "rates are above what the network leaves",
    "under-min-isr": "a partition is under min.insync.replicas",
    "traffic-fell": "less traffic needs less",
    "reports-back": "reports are back",
    "moves-left": "some copies have ended or left",
    "stale-reports": "reports are missing",
    "finished": "nothing is left to pace",
}
OUTCOMES: Mapping[str, str] = {
    "decided": "decided",
    "held": "held",
    "infeasible": "the network leaves less than the minimum",
    "nothing-moves": "nothing is to be paced",
    "resting": "it changed a moment ago",
    "stale": "reports are missing, and it stays",
    "unchanged": "it needs no change",
    "unknown": "not enough is known for one",
}


def outcome_words(outcome: str, *, is_dry_run: bool) -> str:
    """Why nothing was decided; a dry-run sets nothing, so what needs no change there is only what would be set."""
    if is_dry_run and outcome == "unchanged":
        return "what would be set needs no change"
    return OUTCOMES.get(outcome, outcome)
