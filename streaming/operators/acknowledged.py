"""Whether a control event is obeyed: the summaries of the rounds after it name the event in force."""

import time
from collections.abc import Iterable, Mapping, Sequence

from state.outputs import rfc3339
from streaming.operators.action_events import UnreadableEvent
from streaming.operators.overlay import Planned
from streaming.operators.round_events import Round, read_round
from streaming.operators.searching import search_until
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, Refused
from streaming.settings import Settings
from streaming.transport.side import TopicRecord

_PATIENCE_S = 30.0
"""How long to wait after a round could have closed, because reports come late and a batch takes time."""


def wait_until_obeyed(settings: Settings, events: Sequence[Planned]) -> list[Round]:
    """The first round of each cluster that obeys its event, in the order of the events.

    Raises ``NotAcknowledged`` naming the clusters without one, and ``Refused`` where a controller does not take the settings.
    """
    until_s = max(event.first_close_ms for event in events) / 1000 + _PATIENCE_S
    deadline = Deadline(max(_PATIENCE_S, until_s - time.time()))
    found = search_until(
        settings,
        lambda records: acknowledging_rounds(records, events),
        count=len(events),
        deadline=deadline,
    )
    _require_all(events, found)
    return [found[event.cluster] for event in events]


def acknowledging_rounds(records: Iterable[TopicRecord], events: Sequence[Planned]) -> dict[str, Round]:
    """By cluster, the first summary among the records that names the cluster's event."""
    ids = {event.cluster: event.id for event in events}
    found: dict[str, Round] = {}
    for record in records:
        try:
            event = read_round(record.value or b"")
        except UnreadableEvent:
            continue
        control = event.data.control
        if control is not None and control.id == ids.get(event.cluster):
            found.setdefault(event.cluster, event)
    return found


def _require_all(events: Sequence[Planned], found: Mapping[str, Round]) -> None:
    for cluster, event in found.items():
        control = event.data.control
        if control is not None and control.problem is not None:
            raise Refused(f"{cluster}: the controller refuses the settings: {control.problem}")
    missing = [event for event in events if event.cluster not in found]
    if missing:
        names = ", ".join(
            f"{event.cluster} (expected from {rfc3339(event.first_close_ms)} on)" for event in missing
        )
        raise NotAcknowledged(
            f"written, but no round obeys it yet: {names}. No controller runs, or no report of the cluster comes: see "
            "`trimtab status`. The event stays, and the next round obeys it. Executors obey a pause already"
        )
