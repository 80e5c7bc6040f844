"""What may be wrong with a deployment, and what `trimtab doctor` says about it."""

from typing import Any

import msgspec

from state.outputs import OtherBalancers
from streaming.cli.facts import CheckpointSeen, Missed
from streaming.settings import ControllerSettings, Settings, SparkSettings
from streaming.transport.publishing import Marker
from streaming.transport.topics import BrokersSeen, Denied, Difference, TopicsSeen
from tests.streaming.doctor_facts import LEADER, NOW_MS, heard, process, reported, side
from tests.streaming.summaries import THROTTLE, of_kafka


def difference(*, tolerable: bool) -> Difference:
    return Difference(
        topic="trimtab.commits",
        setting="cleanup.policy",
        found="delete",
        expected="compact",
        remedy="Run: kafka-configs.sh …",
        tolerable=tolerable,
    )


NO_BEATS = Denied(what="lacks Write", remedy="Run: x", tolerable=True)


DELETED = Marker(query_id="other", batch_id=42, digest="d", epoch=7)


NO_CHECKPOINT = CheckpointSeen()


REFUSED_CHECKPOINT = CheckpointSeen(
    refusal="checkpoint is of a newer trimtab: run that one, or start over with --fresh, which …",
)


ENDED: dict[str, Any] = {
    "processes": [process(age_s=60.0)],
    "settings": Settings(spark=SparkSettings(checkpoint="/var/lib/trimtab")),
}
"""Nobody leads, and the path of the checkpoint means the same from every directory."""


STANDBY: dict[str, Any] = {"instance": "b:2", "role": "standby", "epoch": 0, "batch": None}


NOT_FROM_HERE = [
    # what is found, and why it need not be the controller's checkpoint
    ({}, "a:1 leads"),
    ({**ENDED, "host": "elsewhere"}, "the controller ran on a"),
    ({**ENDED, "settings": Settings()}, "the path is relative"),
]


WRONG = [
    # check, what is found, the outcome, a part of what is wrong, a part of what to do
    (
        "addresses",
        {"sides": side(brokers=Missed("nobody answers"))},
        "problem",
        "nobody",
        "[input] or [output]",
    ),
    (
        "permissions",
        {"sides": side(topics=TopicsSeen(count=9, denied=(Denied(what="lacks Read", remedy="Run: x"),)))},
        "problem",
        "lacks Read",
        "Run: x",
    ),
    (
        "permissions",
        {"sides": side(topics=TopicsSeen(count=9, denied=(NO_BEATS,)))},
        "warning",
        "lacks Write",
        "Run: x",
    ),
    (
        "permissions",
        {
            "sides": side(topics=TopicsSeen(count=9, denied=(NO_BEATS,))),
            "settings": Settings(controller=ControllerSettings(standby=True)),
        },
        "problem",
        "lacks Write",
        "Run: x",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing=("trimtab.input",)))},
        "problem",
        "the topic is missing",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing_optional=("trimtab.beats",)))},
        "warning",
        "which only `status`, standbys or `execute kafka` need",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, differences=(difference(tolerable=False),)))},
        "problem",
        "cleanup.policy is delete, expected compact",
        "Run: kafka-configs.sh …",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, differences=(difference(tolerable=True),)))},
        "warning",
        "cleanup.policy is delete, expected compact",
        "Run: kafka-configs.sh …",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, warnings=(Denied(what="a TTL", remedy="Run: y"),)))},
        "warning",
        "a TTL",
        "Run: y",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=False),)))},
        "problem",
        "delete, expected compact",
        "Run:",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=True),)))},
        "warning",
        "delete, expected compact",
        "Run:",
    ),
    (
        "clocks",
        {"sides": side(brokers=BrokersSeen(text="Pulsar", ahead_s=30.0))},
        "warning",
        "its clock is 30.0 s behind the brokers'",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": [process(age_s=-4.0)]},
        "warning",
        "its clock is 4.0 s behind the brokers'",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": [process(ahead_s=9.0)]},
        "warning",
        "its clock is 9.0 s ahead of the brokers'",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": reported(ahead_s=11)},
        "problem",
        "refused as ahead-of-log",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": reported(ahead_s=4)},
        "warning",
        "its events are 4.0 s ahead of",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": reported(ahead_s=-90)},
        "warning",
        "its events are 90.0 s behind",
        "timedatectl",
    ),
    (
        "checkpoint",
        {"checkpoint": REFUSED_CHECKPOINT, **ENDED},
        "problem",
        "run that one, or start over with --fresh",
        "docs/operations.md",
    ),
    (
        "checkpoint",
        {"checkpoint": NO_CHECKPOINT, **ENDED},
        "problem",
        "the checkpoint was deleted or replaced by a new one",
        "docs/operations.md",
    ),
    ("checkpoint", {"marker": DELETED, **ENDED}, "problem", "belongs to another query", "docs/operations.md"),
    (
        "checkpoint",
        {"marker": msgspec.structs.replace(DELETED, query_id="q", batch_id=99), **ENDED},
        "problem",
        "older than what was published",
        "docs/operations.md",
    ),
    (
        "checkpoint",
        {"processes": [process(epoch=8)]},
        "problem",
        "the beat of a:1 has epoch 8, and the newest marker 7",
        "docs/operations.md",
    ),
    (
        "checkpoint",
        {"rounds": heard(epoch=9)},
        "problem",
        "the newest round of east-1 has epoch 9, and the newest marker 7: unless a controller has just started, trimtab.commits has",
        "docs/operations.md",
    ),
    ("leader", {"processes": []}, "problem", "no beat of it in the last hour", "trimtab run"),
    (
        "leader",
        {"processes": [process(age_s=600.0)]},
        "problem",
        "its last beat was 10.0 min ago, from a:1",
        "trimtab run",
    ),
    (
        "leader",
        {"processes": [LEADER, process(instance="b:2", epoch=6)]},
        "warning",
        "a:1 (epoch 7), b:2 (epoch 6)",
        "Stop the one",
    ),
    ("leader", {"processes": [process(**STANDBY)]}, "problem", "no controller trimtab runs", "trimtab run"),
    (
        "leader",
        {"processes": [LEADER, process(**STANDBY, problem="newer state")]},
        "problem",
        "this standby could not lead: newer state",
        "before the leader ends",
    ),
    (
        "leader",
        {"settings": Settings(controller=ControllerSettings(standby=True))},
        "warning",
        "no standby is running",
        "trimtab run --standby",
    ),
    ("versions", {"processes": [process(version="0.2.0")]}, "warning", "it has trimtab 0.2.0", "Upgrade"),
    ("versions", {"processes": [process(spark_version="4.1.0")]}, "warning", "it has Spark 4.1.0", "Upgrade"),
    ("lag", {"input": []}, "problem", "no record came in the last day", "trimtab collect"),
    ("lag", {"input": reported(age_s=400)}, "problem", "came 7 min ago", "collector's log"),
    ("lag", {"rounds": []}, "problem", "no round in the last day", "not-deciding.md"),
    (
        "lag",
        {"now_ms": NOW_MS + 600_000, "input": reported(age_s=-597)},
        "problem",
        "newest round ended 10 min ago",
        "not-deciding.md",
    ),
    (
        "balancers",
        {
            "rounds": heard(
                other_balancers=OtherBalancers(
                    shedding_brokers=["b1"], splitting_brokers=[], unknown_brokers=[]
                )
            )
        },
        "problem",
        "Pulsar's own loadBalancerSheddingEnabled is on at b1",
        "--config loadBalancerSheddingEnabled --value false",
    ),
    (
        "balancers",
        {
            "rounds": heard(
                mode="dry-run",
                other_balancers=OtherBalancers(
                    shedding_brokers=[], splitting_brokers=["b1"], unknown_brokers=[]
                ),
            )
        },
        "warning",
        "Pulsar's own loadBalancerAutoBundleSplitEnabled is on at b1",
        "--config loadBalancerAutoBundleSplitEnabled --value false",
    ),
    (
        "balancers",
        {"rounds": heard(other_balancers=None)},
        "not checked",
        "no collector has reported",
        "",
    ),
    (
        "balancers",
        {
            "rounds": heard(
                of_kafka(msgspec.structs.replace(THROTTLE, others_rates_bytes_per_s={"leader:1": 5}))
            )
        },
        "warning",
        "another program has set throttles: leader:1",
        "docs/throttling.md",
    ),
    (
        "rejected",
        {"rejected": {"not-json": 500}},
        "warning",
        "at least 500 records went to trimtab.dead-letter in the last hour: 500 not-json",
        "trimtab rejected tail",
    ),
]
