"""Waiting for rounds that say what a command waits for: their summaries are searched again and again until a deadline."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from streaming.operators.outages import pass_over_outage
from streaming.process.deadline import Deadline
from streaming.settings import Settings
from streaming.systems import output_reader
from streaming.transport.side import TopicRecord

_LOOK_S = 1.0
_SKEW_S = 60.0
"""How far the brokers' clock may be behind ours."""

Found = TypeVar("Found")


def search_until(
    settings: Settings,
    search: Callable[[Iterator[TopicRecord]], Mapping[str, Found]],
    *,
    count: int,
    deadline: Deadline,
) -> Mapping[str, Found]:
    """What ``search`` finds in the records of the audit topic from now on; ends with ``count`` finds or at the deadline.

    Raises ``Refused``.
    """
    begin_ms = round((time.time() - _SKEW_S) * 1000)
    found: Mapping[str, Found] = {}
    while len(found) < count and not deadline.is_over:
        time.sleep(min(_LOOK_S, deadline.left_s))
        with (
            pass_over_outage(deadline),
            output_reader(settings, settings.topics.audit, begin=begin_ms) as reader,
        ):
            found = search(reader.read_to_end())
    return found
