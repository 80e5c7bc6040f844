"""Going on without deleted input: what is missing between a checkpoint and the logs, and the event about it in the audit.

If records were deleted before they were read (a retention that is shorter than an outage), every start ends with an error
until a person allows with ``--skip-lost`` that they are skipped. Memory, cooldowns and budgets stay. The source then skips to
the end of the gap, and not one record more. The event is published before anything is skipped, possibly twice, with one id.
"""

import time
from collections.abc import Sequence

from streaming.contract.skipped import SkippedRange, encode_skipped
from streaming.kafka import reading as kafka
from streaming.kafka.link import input_link
from streaming.pulsar import reading as pulsar
from streaming.pulsar.link import input_on_pulsar
from streaming.settings import Settings
from streaming.systems.append import append_to_output
from streaming.transport.reading import Place


def find_lost(settings: Settings, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges of records that are gone after these places. Raises ``NoAnswer`` or ``PublishError``."""
    link = input_on_pulsar(settings)
    if link is None:
        found = kafka.find_lost(input_link(settings), places)
    else:
        found = pulsar.find_lost(link, settings.input.pulsar.subscription, places)
    return sorted(found, key=lambda each: each.where)


def publish_skipped(settings: Settings, ranges: list[SkippedRange], *, epoch: int) -> None:
    """Publish what is skipped to the audit topic, and wait until it is there. Raises ``PublishError``."""
    value = encode_skipped(ranges, name=settings.controller.name, time_ms=round(time.time() * 1000))
    append_to_output(settings, settings.topics.audit, [(None, value)], epoch=epoch)
