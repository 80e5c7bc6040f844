"""How a start takes over: look, fence, look again, claim, and only then touch the checkpoint.

The first look refuses what can be refused without fencing, so that a refusal leaves the running controller running.
What the second look finds is final: no other process can publish any more.
"""

from streaming.settings import Settings
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.transport.errors import CheckpointError, StartWith
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import Checkpoint


def take_over(
    checkpoint: CheckpointDirectory,
    publisher: Publisher,
    settings: Settings,
    *,
    start_with: StartWith,
) -> int:
    """Returns the epoch of this start; raises ``CheckpointError`` and what ``Publisher.open`` does.

    A process that takes over while the directory is made may delete it: then this start is fenced, not refused.
    """

    def inspect() -> Checkpoint:
        return checkpoint.inspect(settings, start_with)

    publisher.check(inspect, start_with=start_with)
    epoch = publisher.open(inspect, start_with=start_with)
    try:
        checkpoint.begin(settings, publisher.marker, start_with)
    except CheckpointError:
        try:
            publisher.ensure_owner()
        finally:
            publisher.close()  # it is opened again where the store is waited for
        raise
    return epoch
