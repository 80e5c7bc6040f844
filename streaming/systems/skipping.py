"""Going on without input that is gone: what is missing between a checkpoint and the logs, and saying so in the audit.

Records deleted before they were read (a retention that is shorter than an outage) end every start, until a person says
with ``--skip-lost`` that they may be passed over. Memory, cooldowns and budgets stay. The source then skips until it is past
the gap, and not one record longer. The statement is said before anything is skipped, and possibly twice, under one id.
"""

import time
from collections.abc import Sequence

from streaming.contract.skipped import SkippedRange, encode_skipped
from streaming.kafka import skipping as kafka
from streaming.kafka.link import input_link
from streaming.ports.places import Place
from streaming.pulsar import skipping as pulsar
from streaming.pulsar.link import input_on_pulsar
from streaming.settings import Settings
from streaming.systems.append import append_to_output

__all__ = ["find_lost", "say"]


def find_lost(settings: Settings, places: Sequence[Place]) -> list[SkippedRange]:
    """What is gone after these places. Raises ``NoAnswer`` or ``PublishError``."""
    link = input_on_pulsar(settings)
    if link is None:
        found = kafka.find_lost(input_link(settings), places)
    else:
        found = pulsar.find_lost(link, settings.input.pulsar.subscription, places)
    return sorted(found, key=lambda each: each.where)


def say(settings: Settings, ranges: list[SkippedRange], *, epoch: int) -> None:
    """Publish what is skipped to the audit topic, and wait until it is there. Raises ``PublishError``."""
    value = encode_skipped(ranges, name=settings.controller.name, time_ms=round(time.time() * 1000))
    append_to_output(settings, settings.topics.audit, [(None, value)], epoch=epoch)
