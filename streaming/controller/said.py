"""What the log says of published outputs: a line an action, and a line a round for whoever asks for more (``-v``).

Each line carries cluster, round and, where it has one, the action's id as fields.
"""

import logging

import msgspec

from streaming.spark.rows import ACTION, DRY_RUN_ACTION, ROUND

_LOG = logging.getLogger("trimtab.published")


class _Data(msgspec.Struct, frozen=True):
    round: int
    reason: str
    outcome: str | None = None
    actions_count: int | None = None


class _Event(msgspec.Struct, frozen=True):
    id: str
    type: str
    cluster: str
    data: _Data


_decoder = msgspec.json.Decoder(_Event)


def log_output(kind: str, value: bytes) -> None:
    """Log one output that is out; other kinds of row say nothing."""
    if kind in {ACTION, DRY_RUN_ACTION}:
        event = _decoder.decode(value)
        about = {"cluster": event.cluster, "round": event.data.round, "action_id": event.id}
        shown = " (dry-run)" if kind == DRY_RUN_ACTION else ""
        text = "%s, round %d: %s %s%s: %s"
        _LOG.info(
            text, event.cluster, event.data.round, event.type, event.id, shown, event.data.reason, extra=about
        )
    elif kind == ROUND and _LOG.isEnabledFor(logging.DEBUG):
        event = _decoder.decode(value)
        about = {"cluster": event.cluster, "round": event.data.round}
        text = "%s, round %d: %s, %d actions: %s"
        data = event.data
        _LOG.debug(
            text, event.cluster, data.round, data.outcome, data.actions_count, data.reason, extra=about
        )
