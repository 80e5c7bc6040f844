"""How much is taken from one cluster: more is refused with a reason, so that no sender makes its memory grow for ever.

Every limit is far above what a real cluster sends, and holds for one round; docs/limits.md lists them all. Above a limit the
order of arrival decides what is refused: what was taken first stays.
"""

from collections.abc import Collection
from typing import Final

from state.engine.memory import OpenRound, ResultRecord, Waiters
from state.engine.store import WaitingKey, WaitingKind
from state.engine.system import Waiting
from state.events import Rejection, RejectReason

MAX_BROKERS_COUNT: Final = 10_000
"""Brokers with a report in one round: ten times the largest cluster of the benchmarks. Their times and ids are about 1 MB in a value
that every batch writes."""
MAX_ROWS_COUNT: Final = 1_000_000
"""Bundles, topics, or replicas on the move, of all brokers of a round: ten times the largest fleet of the benchmarks; 90 MB of
memory."""
MAX_RESULTS_COUNT: Final = 10_000
"""Results of actions in one round: a round decides a few dozen, and executors answer each. About 1.5 MB in a value that every
batch writes."""
MAX_EARLY_RESULTS_COUNT: Final = 1_000
"""Results of actions before the first report of a cluster, which has decided nothing yet."""

MAX_APPROVALS_COUNT: Final = 1_000
"""Approvals and rejections of one cluster between two summaries: a person answers a few dozen proposals."""

_ROWS: Final[dict[WaitingKind, tuple[str, RejectReason]]] = {
    "report": ("bundles", "too-many-bundles"),
    "topics": ("topics", "too-many-topics"),
    "logs": ("replicas", "too-many-replicas"),
}
"""What the rows of a report are. All that moves in a Kafka cluster is one record, whose size is limited already."""


def refusal(waits: tuple[WaitingKey, Waiting] | None, open_round: OpenRound) -> Rejection | None:
    """Why an event is not taken into its round; ``waits`` is its part that would wait."""
    if waits is None or waits[0].kind not in _ROWS:
        return None
    key, new = waits
    there, (what, reason) = open_round.waiters.get(key.kind, Waiters()), _ROWS[key.kind]
    before = there.senders.get(key.broker)
    if before is None and len(there.senders) >= MAX_BROKERS_COUNT:
        return _reject("too-many-brokers", "brokers", MAX_BROKERS_COUNT)
    rows_count = there.rows_count + new.rows_count - (0 if before is None else before.rows_count)
    if rows_count > MAX_ROWS_COUNT:
        return _reject(reason, what, MAX_ROWS_COUNT)
    return None


def refused_result(record: ResultRecord, known: Collection[ResultRecord]) -> Rejection | None:
    """Why a result is not taken into its round, whose results are ``known``."""
    if len(known) < MAX_RESULTS_COUNT or record in known:
        return None
    return _reject("too-many-results", "results of actions", MAX_RESULTS_COUNT)


def refused_early_result(known_count: int) -> Rejection | None:
    """Why a result of a cluster without a report is not kept, where this many are."""
    if known_count < MAX_EARLY_RESULTS_COUNT:
        return None
    return Rejection(
        reason="too-many-results",
        detail=f"{MAX_EARLY_RESULTS_COUNT} results of actions of this cluster wait for its first report already, and more are not "
        f"taken: look for a sender that makes names up, or for reports that do not come",
    )


def refused_approval(waiting_count: int) -> Rejection | None:
    """Why a person's approval or rejection is not taken, where this many wait for the next summary."""
    if waiting_count < MAX_APPROVALS_COUNT:
        return None
    return Rejection(
        reason="too-many-approvals",
        detail=f"{MAX_APPROVALS_COUNT} approvals of this cluster wait for a round to close already, and more are not taken: look "
        f"for a sender that repeats itself under new ids, or for reports that do not come",
    )


def _reject(reason: RejectReason, what: str, limit: int) -> Rejection:
    return Rejection(
        reason=reason,
        detail=f"the round has {limit} {what} of this cluster already, and more are not taken: look for a sender that makes "
        f"names up, or that repeats itself under new ids",
    )
