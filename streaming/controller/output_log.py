"""What the log says of published outputs: a line an action, and a line a round for whoever asks for more (``-v``).

Each line carries cluster, round and, where it has one, the action's id as fields.
"""

import logging

from state.outputs import RoundSummary
from streaming.controller.published import Published

_LOG = logging.getLogger("trimtab.published")


def log_output(event: Published) -> None:
    """Log one output that is out."""
    data = event.data
    about = {"cluster": data.cluster, "round": data.round}
    if isinstance(data, RoundSummary):
        text = "%s, round %d: %s, %d actions: %s"
        _LOG.debug(text, data.cluster, data.round, data.outcome, data.actions_count, data.reason, extra=about)
    else:
        about["action_id"] = event.id
        shown = " (dry-run)" if data.dry_run else ""
        text = "%s, round %d: %s %s%s: %s"
        _LOG.info(text, data.cluster, data.round, event.type, event.id, shown, data.reason, extra=about)
