"""A deployment that is well, as `trimtab doctor` finds it."""

from typing import Any

import msgspec

from state.outputs import OtherBalancers, RoundSummary
from state.outputs.actions import ROUND_TYPE
from streaming.operators.doctor.facts import (
    CheckpointSeen,
    Facts,
    InputSeen,
    ObservedCluster,
    Process,
    RejectedSeen,
    SideSeen,
)
from streaming.operators.doctor.findings import Missed
from streaming.operators.round_events import Round
from streaming.settings import Settings
from streaming.transport.checkpoint import card_of
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.topics import BrokersSeen, TopicsSeen
from tests.streaming.summaries import ROUND, section

NOW_MS = 500_000
"""Twenty seconds after the end of the round below."""


SETTINGS = Settings()


CARD = msgspec.structs.replace(card_of(SETTINGS), trimtab_version="0.1.0", spark_version="4.2.1")


LEADER = Process(
    controller="trimtab",
    instance="a:1",
    epoch=7,
    batch=42,
    version="0.1.0",
    role="leader",
    problem="",
    age_s=2.0,
    runs=True,
    ahead_s=-0.01,
)


QUIET = msgspec.structs.replace(
    ROUND,
    brokers_missing_count=0,
    findings=section(),
    other_balancers=OtherBalancers(shedding_brokers=[], splitting_brokers=[], unknown_brokers=[]),
)


def heard(data: RoundSummary = QUIET, *, epoch: int | None = 7, **fields: Any) -> tuple[ObservedCluster, ...]:
    data = msgspec.structs.replace(data, **fields)
    event = Round(
        id="", source="/trimtab/trimtab", type=ROUND_TYPE, cluster=data.cluster, time=data.end, data=data
    )
    return (ObservedCluster(event=event, epoch=epoch),)


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
    version="0.1.0",
    spark_version="4.2.1",
    host="a",
    now_ms=NOW_MS,
    sides=side(),
    marker=Marker(query_id="q", batch_id=42, digest="d", epoch=7),
    checkpoint=CheckpointSeen(
        location="checkpoint",
        card=CARD,
        checkpoint=Checkpoint(query_id="q", last_batch_id=43, epoch=7),
        committed_batch=42,
    ),
    processes=(LEADER,),
    clusters=heard(),
    input=InputSeen(youngest_age_s=3.0, ahead_s={"/trimtab/collect/east-1": -0.2}),
    rejected=RejectedSeen(counts={}, is_complete=True),
)
