"""What may be wrong with a deployment, and what `trimtab doctor` says about it."""

from dataclasses import replace
from typing import Any

import msgspec

from state.outputs import Finding, OtherBalancers
from streaming.cli.facts import FULL, LOCKED, CheckpointSeen, Missed
from streaming.contract.encode import SkippedRange
from streaming.settings import ControllerSettings, Settings, SparkSettings
from streaming.transport.checkpoint import place_of
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.topics import BrokersSeen, Denied, Difference, TopicsSeen
from tests.streaming.doctor_facts import LEADER, NOW_MS, heard, process, reported, side
from tests.streaming.summaries import THROTTLE, of_kafka, section


def difference(*, tolerable: bool) -> Difference:
    return Difference(
        topic="trimtab.commits",
        setting="cleanup.policy",
        found="delete",
        expected="compact",
        remedy="Run: kafka-configs.sh …",
        tolerable=tolerable,
    )


def missing_results(kind: Any) -> dict[str, Any]:
    """A newest round with a finding about actions without results."""
    row = Finding(kind=kind, subject="east-1", broker="", bytes_per_s=None, advice=f"{kind}: start one")
    return {"rounds": heard(findings=msgspec.structs.replace(section(**{kind: 1}), heaviest=[row]))}


NO_BEATS = Denied(what="lacks Write", remedy="Run: x", tolerable=True)


DELETED = Marker(query_id="other", batch_id=42, digest="d", epoch=7)


NO_CHECKPOINT = CheckpointSeen()


USABLE = CheckpointSeen(checkpoint=Checkpoint(query_id="q", last_batch_id=43, epoch=7))
FULL_DISK = replace(USABLE, obstacle=FULL)
FULL_AT_FIRST = CheckpointSeen(obstacle=FULL)
LOCKED_DISK = replace(USABLE, obstacle=LOCKED)
LEADS_HERE = {"processes": [process(checkpoint=place_of("checkpoint"))]}


LOST = [SkippedRange(topic="trimtab.input", partition=0, read_until="3:7", goes_on_from="9:-1")]


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
    ({}, "a:1 leads with another one, "),
    ({**ENDED, "host": "elsewhere"}, "the controller ran on a"),
    (
        {**ENDED, "host": "elsewhere", "processes": [process(checkpoint="/var/lib/trimtab")]},
        "a:1 leads",
    ),
    ({**ENDED, "processes": [process(checkpoint="/mnt/trimtab")]}, "another one, /mnt/trimtab on a"),
    ({**ENDED, "settings": Settings()}, "the path is relative"),
]


RECOVER, CLOCKS = "docs/run/recover.md", "timedatectl"


def topics(**seen: Any) -> dict[str, Any]:
    """Topics of which something is seen beside their number."""
    return {"sides": side(topics=TopicsSeen(count=9, **seen))}


def balanced_by(*, shedding: tuple[str, ...] = (), splitting: tuple[str, ...] = (), **fields: Any) -> Any:
    """A newest round that says where Pulsar itself balances."""
    others = OtherBalancers(shedding_brokers=[*shedding], splitting_brokers=[*splitting], unknown_brokers=[])
    return {"rounds": heard(other_balancers=others, **{"mode": "act"} | fields)}


STANDBY_WANTED = {"settings": Settings(controller=ControllerSettings(standby=True))}
READ_DENIED = Denied(what="lacks Read", remedy="Run: x")
TTL = Denied(what="a TTL", remedy="Run: y")
GIVEN_UP = msgspec.structs.replace(DELETED, over=("q",))
OLDER = msgspec.structs.replace(DELETED, query_id="q", batch_id=99)
THROTTLED = of_kafka(msgspec.structs.replace(THROTTLE, others_rates_bytes_per_s={"leader:1": 5}))
LEFT = of_kafka(
    msgspec.structs.replace(THROTTLE, partitions_moving_count=0, others_rates_bytes_per_s={"leader:1": 5})
)
LATE: dict[str, Any] = {"now_ms": NOW_MS + 600_000, "input": reported(age_s=-597)}
CLEANUP = "cleanup.policy is delete, expected compact"
EPOCH_OF_ROUND = (
    "the newest round of east-1 has epoch 9, and the newest marker 7: "
    "unless a controller has just started, its commits topic has"
)
MANY_REJECTED = "at least 500 records went to trimtab.dead-letter in the last hour: 500 not-json"
SHEDDING, SPLITTING = "loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"

PROBLEMS: list[tuple[str, dict[str, Any], str, str]] = [
    # check, what is found, a part of what is wrong, a part of what to do
    ("addresses", {"sides": side(brokers=Missed("nobody answers"))}, "nobody", "[input] or [output]"),
    ("permissions", topics(denied=(READ_DENIED,)), "lacks Read", "Run: x"),
    ("permissions", {**topics(denied=(NO_BEATS,)), **STANDBY_WANTED}, "lacks Write", "Run: x"),
    ("topics", topics(missing=("trimtab.input",)), "the topic is missing", "trimtab topics create"),
    ("topics", topics(differences=(difference(tolerable=False),)), CLEANUP, "Run: kafka-configs.sh …"),
    ("topics", topics(unwell=(difference(tolerable=False),)), "delete, expected compact", "Run:"),
    ("clocks", {"input": reported(ahead_s=11)}, "refused as ahead-of-log", CLOCKS),
    (
        "checkpoint",
        {"checkpoint": REFUSED_CHECKPOINT, **ENDED},
        "run that one, or start over with --fresh",
        RECOVER,
    ),
    (
        "checkpoint",
        {"checkpoint": NO_CHECKPOINT, **ENDED},
        "its checkpoint is not at /",
        RECOVER,
    ),
    (
        "checkpoint",
        {**ENDED, "checkpoint": NO_CHECKPOINT, "processes": [process(checkpoint="/var/lib/trimtab")]},
        "the checkpoint /var/lib/trimtab was deleted or replaced under a:1, which leads with it",
        "remove what is there now, bring the same checkpoint back",
    ),
    (
        "checkpoint",
        {**LEADS_HERE, "checkpoint": FULL_DISK},
        "checkpoint: its disk is full",
        "Free space on it",
    ),
    (
        "checkpoint",
        {"processes": [], "rounds": [], "marker": None, "checkpoint": FULL_AT_FIRST},
        "checkpoint: its disk is full",
        "Free space on it",
    ),
    (
        "checkpoint",
        {"processes": [], "checkpoint": LOCKED_DISK},
        "this command's user may not write there",
        "permissions",
    ),
    (
        "checkpoint",
        {
            "settings": Settings(),
            "checkpoint": NO_CHECKPOINT,
            "processes": [process(age_s=60.0, checkpoint=place_of("checkpoint"))],
        },
        "its checkpoint is not at /",
        RECOVER,
    ),
    (
        "checkpoint",
        {"lost": LOST, **ENDED},
        "not read yet (trimtab.input, partition 0: records after 3:7, reading goes on from 9:-1): go on with --skip-lost",
        RECOVER,
    ),
    ("checkpoint", {"marker": DELETED, **ENDED}, "belongs to another query", RECOVER),
    ("checkpoint", {"marker": OLDER, **ENDED}, "older than what was published", RECOVER),
    (
        "checkpoint",
        {"processes": [process(epoch=8)]},
        "the beat of a:1 has epoch 8, and the newest marker 7",
        RECOVER,
    ),
    ("checkpoint", {"rounds": heard(epoch=9)}, EPOCH_OF_ROUND, RECOVER),
    ("leader", {"processes": []}, "no beat of it in the last hour", "trimtab run"),
    (
        "leader",
        {"processes": [process(age_s=600.0)]},
        "its last beat was 10 min ago, from a:1",
        "say why it ended",
    ),
    (
        "leader",
        {"processes": [process(name="night", instance="b:2")]},
        'controller "night" leads on the same topics (b:2), and none called "trimtab" does',
        "set controller.name",
    ),
    (
        "leader",
        {"processes": [LEADER, process(name="night", instance="b:2")]},
        'controller "night" leads on the same topics (b:2): both decide the same clusters',
        "[topics]",
    ),
    ("leader", {"processes": [process(**STANDBY)]}, 'no controller "trimtab" runs', "trimtab run"),
    (
        "leader",
        {"processes": [LEADER, process(**STANDBY, problem="newer state")]},
        "this standby could not lead: newer state",
        "before the leader ends",
    ),
    (
        "leader",
        {"processes": [process(problem="its query fails: a disk is full")]},
        "a:1 runs, epoch 7, batch 42, but its query fails: a disk is full",
        "Remove the cause",
    ),
    ("lag", {"input": []}, "no record came in the last day", "trimtab collect"),
    ("lag", {"input": reported(age_s=400)}, "came 7 min ago", "collector's log"),
    ("lag", {"rounds": []}, "no round in the last day", "not-deciding.md"),
    ("lag", LATE, "newest round ended 10 min ago", "not-deciding.md"),
    ("executors", missing_results("not-carried-out"), "not-carried-out: start one", "not-carried-out.md"),
    (
        "balancers",
        balanced_by(shedding=("b1",)),
        f"Pulsar's own {SHEDDING} is on at b1",
        f"--config {SHEDDING} --value false",
    ),
]
WARNINGS: list[tuple[str, dict[str, Any], str, str]] = [
    ("permissions", topics(denied=(NO_BEATS,)), "lacks Write", "Run: x"),
    (
        "topics",
        topics(missing_optional=("trimtab.beats",)),
        "which only `status` and standbys need",
        "trimtab topics create",
    ),
    (
        "topics",
        topics(missing_optional=(Settings().topics.executor_kafka,)),
        "which only `execute kafka` needs",
        "trimtab topics create",
    ),
    ("topics", topics(differences=(difference(tolerable=True),)), CLEANUP, "Run: kafka-configs.sh …"),
    ("topics", topics(warnings=(TTL,)), "a TTL", "Run: y"),
    ("topics", topics(unwell=(difference(tolerable=True),)), "delete, expected compact", "Run:"),
    (
        "clocks",
        {"sides": side(brokers=BrokersSeen(text="Pulsar", ahead_s=30.0))},
        "its clock is 30.0 s behind the brokers'",
        CLOCKS,
    ),
    ("clocks", {"processes": [process(age_s=-4.0)]}, "its clock is 4.0 s behind the brokers'", CLOCKS),
    ("clocks", {"processes": [process(ahead_s=9.0)]}, "its clock is 9.0 s ahead of the brokers'", CLOCKS),
    ("clocks", {"input": reported(ahead_s=4)}, "its events are 4.0 s ahead of", CLOCKS),
    ("clocks", {"input": reported(ahead_s=-90)}, "its events are 90.0 s behind", CLOCKS),
    (
        "leader",
        {"processes": [LEADER, process(instance="b:2", epoch=6)]},
        "a:1 (epoch 7), b:2 (epoch 6)",
        "Stop the one",
    ),
    ("leader", STANDBY_WANTED, "no standby is running", "trimtab run --standby"),
    ("versions", {"processes": [process(version="0.2.0")]}, "it has trimtab 0.2.0", "Upgrade"),
    ("versions", {"processes": [process(spark_version="4.1.0")]}, "it has Spark 4.1.0", "Upgrade"),
    ("executors", missing_results("no-results"), "no-results: start one", "not-carried-out.md"),
    (
        "balancers",
        balanced_by(splitting=("b1",), settings={"guards": {"hold_with_other_balancer": False}}),
        f"Pulsar's own {SPLITTING} is on at b1: pulsar.guards.hold_with_other_balancer = false lets both act",
        "",
    ),
    (
        "balancers",
        {"rounds": heard(THROTTLED)},
        "another program has set throttles: leader:1",
        "docs/use/throttling.md",
    ),
    (
        "balancers",
        {"rounds": heard(LEFT)},
        "leader:1, and nothing is copied: they stay, and hold back what moves next",
        "docs/use/throttling.md",
    ),
    ("rejected", {"rejected": {"not-json": 500}}, MANY_REJECTED, "trimtab rejected tail"),
]
WRONG = [
    *((check, changed, "problem", finding, remedy) for check, changed, finding, remedy in PROBLEMS),
    *((check, changed, "warning", finding, remedy) for check, changed, finding, remedy in WARNINGS),
    ("balancers", {"rounds": heard(other_balancers=None)}, "not checked", "no collector has reported", ""),
]
"""Check, what is found, the outcome, a part of what is wrong, and a part of what to do."""
