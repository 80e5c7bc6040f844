"""A deployment that is well, as `trimtab doctor` finds it."""

from typing import Any

import msgspec

from state.outputs import OtherBalancers, RoundSummary
from state.outputs.actions import ROUND_TYPE
from streaming.cli.facts import CheckpointSeen, Facts, Missed, SideSeen
from streaming.cli.published import Process, Round
from streaming.settings import Settings
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.side import TopicRecord
from streaming.transport.topics import BrokersSeen, TopicsSeen
from tests.streaming.events import tick
from tests.streaming.records import BEAT, on_topic
from tests.streaming.summaries import ROUND, section

NOW_MS = 500_000
"""Twenty seconds after the end of the round below."""

SETTINGS = Settings()


def process(*, age_s: float = 2.0, ahead_s: float = -0.01, **fields: Any) -> Process:
    """The leader; ``fields`` are those of its beat that differ."""
    usual = {"name": "trimtab", "batch": 42, "version": "0.1.0", "spark_version": "4.2.1"}
    return Process(beat=msgspec.structs.replace(BEAT, **usual | fields), age_s=age_s, ahead_s=ahead_s)


LEADER = process()

QUIET = msgspec.structs.replace(
    ROUND,
    brokers_missing_count=0,
    findings=section(),
    other_balancers=OtherBalancers(shedding_brokers=[], splitting_brokers=[], unknown_brokers=[]),
)


def heard(
    data: RoundSummary = QUIET, *, epoch: int | None = 7, **fields: Any
) -> list[tuple[Round, int | None]]:
    data = msgspec.structs.replace(data, **fields)
    event = Round(
        id="", source="/trimtab/trimtab", type=ROUND_TYPE, cluster=data.cluster, time=data.end, data=data
    )
    return [(event, epoch)]


def sent(source: str, time_s: float, appended_ms: int, **attributes: object) -> TopicRecord:
    """An event of the input as it is on its topic."""
    return on_topic(tick(time_s=time_s, source=source, **attributes), at_ms=appended_ms)


def reported(*, ahead_s: int = 0, age_s: int = 3) -> list[TopicRecord]:
    """A record of the input so many seconds old, from a sender whose clock is so far ahead."""
    appended_s = NOW_MS // 1000 - age_s
    return [sent("/c", appended_s + ahead_s, 1000 * appended_s)]


def side(
    *,
    brokers: BrokersSeen | Missed | None = None,
    topics: TopicsSeen | Missed | None = None,
    url: str = "kafka://k:9092",
) -> tuple[SideSeen, ...]:
    return (
        SideSeen(
            name="input and output",
            url=url,
            brokers=brokers or BrokersSeen(text="3 brokers of Kafka", version="4.0"),
            topics=topics or TopicsSeen(count=9),
        ),
    )


WELL = Facts(
    settings=SETTINGS,
    versions={"trimtab": "0.1.0", "Spark": "4.2.1"},
    host="a",
    now_ms=NOW_MS,
    sides=side(),
    marker=Marker(query_id="q", batch_id=42, digest="d", epoch=7),
    checkpoint=CheckpointSeen(checkpoint=Checkpoint(query_id="q", last_batch_id=43, epoch=7)),
    lost=(),
    processes=[LEADER],
    rounds=heard(),
    input=reported(),
    rejected={},
)
