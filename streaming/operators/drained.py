"""How far drains are, round by round, until the brokers are empty."""

import time
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from streaming.operators.outages import pass_over_outage
from streaming.operators.overlay import Planned
from streaming.operators.round_events import Newest, Round
from streaming.operators.upkeep import drain_line, drain_rows, is_over, is_stuck, left_lines, own_lines
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged
from streaming.settings import Settings
from streaming.systems import output_reader

_PATIENCE_S = 300.0
"""How long to wait for a newer round: without one nothing is decided, and there is nothing to show."""
_LOOK_S = 1.0


def follow_drains(
    settings: Settings, events: Sequence[Planned], brokers: Collection[str], *, tell: Callable[[str], None]
) -> None:
    """Show how far the drains are in each round; returns when the brokers of all clusters are empty, but for Pulsar's own.

    Raises ``NotAcknowledged`` if every bundle left stays for a reason that no later round changes, or if no round comes, and
    ``Refused`` if a round cannot be read.
    """
    begin_ms = min(event.time_ms for event in events)
    open_ = {event.cluster for event in events}
    newest, reported = Newest(), dict.fromkeys(open_, -1)
    deadline = Deadline(_PATIENCE_S)
    while open_:
        with (
            pass_over_outage(deadline),
            output_reader(settings, settings.topics.audit, begin=begin_ms) as reader,
        ):
            newest.take(reader.read_to_end())
        for record, event in newest.rounds(settings.topics.audit):
            if event.cluster not in open_ or event.data.round <= reported[event.cluster]:
                continue
            reported[event.cluster] = event.data.round
            deadline = Deadline(_PATIENCE_S)
            begin_ms = max(begin_ms, record.timestamp)
            if _is_over(event, brokers, tell):
                open_.discard(event.cluster)
        if open_ and deadline.is_over:
            raise NotAcknowledged(
                f"{', '.join(sorted(open_))}: no round in the last {_PATIENCE_S:g} s, so the drain's progress is not known: see "
                "`trimtab status`. The drain goes on with the next round"
            )
        if open_:
            time.sleep(_LOOK_S)


def _is_over(event: Round, brokers: Collection[str], tell: Callable[[str], None]) -> bool:
    rows = drain_rows(event.data, brokers)
    if not rows:
        return False  # a round from before the drain
    for row in rows:
        tell(f"{event.cluster}: round {event.data.round}: {drain_line(row)}")
    if all(map(is_over, rows)):
        for line in chain.from_iterable(map(own_lines, rows)):
            tell(f"{event.cluster}: {line}")
        return True
    if is_stuck(event.data):
        for line in left_lines(event.data.upkeep):
            tell(f"{event.cluster}: {line}")
        raise NotAcknowledged(
            f"{event.cluster}: no later round will move the bundles that are left: move them yourself, or remove the "
            "reason. The drain goes on"
        )
    return False
