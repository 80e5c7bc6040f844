"""What may be wrong with a deployment, and what `trimtab doctor` says about it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec

from state.outputs import Finding, OtherBalancers, Section
from streaming.operators.doctor.facts import CheckpointSeen, InputSeen, RejectedSeen
from streaming.operators.doctor.findings import Missed
from streaming.settings import ControllerSettings, Settings, SparkSettings
from streaming.transport.publishing import Marker
from streaming.transport.topics import BrokersSeen, Denied, Difference, TopicsSeen
from tests.streaming.doctor_facts import LEADER, NOW_MS, heard, side
from tests.streaming.summaries import CONTROL, THROTTLE, of_kafka, section


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


NO_CHECKPOINT = CheckpointSeen(location="checkpoint")


REFUSED_CHECKPOINT = CheckpointSeen(
    location="checkpoint",
    refusal="checkpoint is of a newer trimtab: run that one, or start over with --fresh, which …",
)


ENDED: dict[str, Any] = {
    "processes": (replace(LEADER, runs=False, age_s=60.0),),
    "settings": Settings(spark=SparkSettings(checkpoint="/var/lib/trimtab")),
}
"""Nobody leads, and the path of the checkpoint means the same from every directory."""


STANDBY = replace(LEADER, instance="b:2", role="standby", epoch=0, batch=None)


def findings(*kinds: str, advice: str = "add partitions") -> Section[Finding]:
    """Findings of a round; all are about ``x``."""
    rows = [Finding(kind=kind, subject="x", broker="", bytes_per_s=None, advice=advice) for kind in kinds]  # type: ignore[arg-type]
    return Section(count=len(rows), outcomes=dict(Counter(kinds)), heaviest=rows)


NOBODY_OBEYS = findings("nobody-obeys", advice="Start an executor: `trimtab execute pulsar east-1`")


NOT_FROM_HERE = [
    # what is found, and why it need not be the controller's checkpoint
    ({}, "a:1 leads"),
    ({**ENDED, "host": "elsewhere"}, "the controller ran on a"),
    ({**ENDED, "settings": Settings()}, "the path is relative"),
]


WRONG = [
    # check, what is found, the outcome, a part of what is wrong, a part of what to do
    ("addresses", {"sides": side(brokers=Missed("nobody answers"))}, "problem", "nobody", "input.url"),
    (
        "addresses",
        {"sides": side(brokers=Missed("nobody answers"), url="pulsar://p:1")},
        "problem",
        "nobody answers",
        "[input.pulsar]",
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
        "without it trimtab cannot show which controller runs",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing_optional=("trimtab.executor.kafka",)))},
        "warning",
        "only `trimtab execute kafka` needs it",
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
        "partitions",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=False),)))},
        "problem",
        "delete, expected compact",
        "Run:",
    ),
    (
        "partitions",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=True),)))},
        "warning",
        "delete, expected compact",
        "Run:",
    ),
    (
        "clocks",
        {"sides": side(brokers=BrokersSeen(text="Pulsar", ahead_s=30.0))},
        "warning",
        "this machine's clock is 30.0 s behind that of input and output",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": (replace(LEADER, age_s=-4.0),)},
        "warning",
        "this machine's clock is 4.0 s behind that of the brokers",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": (replace(LEADER, ahead_s=9.0),)},
        "warning",
        "its clock is 9.0 s ahead of the brokers'",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": 11.0})},
        "problem",
        "refused as ahead-of-log",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": 4.0})},
        "warning",
        "its events are 4.0 s ahead of",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": -90.0})},
        "warning",
        "its events are 90.0 s behind",
        "whether the sender keeps up",
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
        "there is none at checkpoint on this machine, a, and the controller ran on it",
        "--fresh, which forgets",
    ),
    ("marker", {"marker": DELETED, **ENDED}, "problem", "belongs to another query", "docs/operations.md"),
    (
        "marker",
        {"checkpoint": NO_CHECKPOINT, **ENDED},
        "problem",
        "deleted or replaced",
        "docs/operations.md",
    ),
    (
        "marker",
        {"marker": msgspec.structs.replace(DELETED, query_id="q", batch_id=99), **ENDED},
        "problem",
        "older than what was published",
        "docs/operations.md",
    ),
    (
        "epoch",
        {"processes": (replace(LEADER, epoch=8),)},
        "problem",
        "the beat of a:1 has epoch 8, and the newest marker 7",
        "trimtab.commits",
    ),
    ("epoch", {"clusters": heard(epoch=9)}, "problem", "the newest round of east-1 has epoch 9", "emptied"),
    ("leader", {"processes": ()}, "problem", "no beat of it in the last hour", "trimtab run"),
    (
        "leader",
        {"processes": (replace(LEADER, runs=False, age_s=600.0),)},
        "problem",
        "its last beat was 10.0 min ago, from a:1",
        "trimtab run",
    ),
    (
        "leader",
        {"processes": (LEADER, replace(LEADER, instance="b:2", epoch=6))},
        "warning",
        "a:1 (epoch 7), b:2 (epoch 6)",
        "stop the one",
    ),
    ("leader", {"processes": (STANDBY,)}, "problem", "no controller trimtab runs", "trimtab run"),
    (
        "leader",
        {"processes": (LEADER, replace(STANDBY, problem="newer state"))},
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
    ("versions", {"processes": (replace(LEADER, version="0.2.0"),)}, "warning", "0.2.0", "upgrade"),
    ("versions", {"spark_version": "4.1.0"}, "warning", "written by Spark 4.2.1", "pip install"),
    (
        "reports",
        {"input": InputSeen(youngest_age_s=None, ahead_s={})},
        "problem",
        "no record came on trimtab.input in the last day",
        "trimtab collect",
    ),
    (
        "reports",
        {"input": InputSeen(youngest_age_s=600.0, ahead_s={})},
        "problem",
        "came 10 min ago",
        "trimtab collect",
    ),
    ("rounds", {"clusters": ()}, "problem", "no round of any cluster", "leader and reports"),
    ("rounds", {"now_ms": NOW_MS + 600_000}, "problem", "newest round ended 10 min ago", "not-deciding.md"),
    (
        "rounds",
        {"clusters": heard(outcome="internal-error", reason="ValueError at x")},
        "problem",
        "ValueError at x",
        "report it",
    ),
    (
        "rounds",
        {"clusters": heard(outcome="no-quorum", reason="1 of 4 report")},
        "warning",
        "1 of 4 report",
        "trimtab status",
    ),
    (
        "rounds",
        {"clusters": heard(failing_since="10:00")},
        "problem",
        "all unloads are held since 10:00",
        "trimtab resume --cluster east-1",
    ),
    (
        "rounds",
        {"clusters": heard(splits_failing_since="10:00")},
        "problem",
        "all splits are held since 10:00",
        "trimtab resume",
    ),
    (
        "rounds",
        {"clusters": heard(paused=True, control=CONTROL)},
        "warning",
        "it is paused by maria: the sale",
        "trimtab resume",
    ),
    (
        "rounds",
        {"clusters": heard(control=msgspec.structs.replace(CONTROL, problem="no such key"))},
        "warning",
        "not in force: no such key",
        "trimtab policy show",
    ),
    (
        "rounds",
        {"clusters": heard(brokers_missing_count=1, brokers_missing=["b4"])},
        "warning",
        "live brokers did not report: b4",
        "whether they run",
    ),
    ("rounds", {"clusters": heard(findings=NOBODY_OBEYS)}, "problem", "trimtab execute", "nobody-obeys.md"),
    (
        "rounds",
        {"clusters": heard(findings=findings("hot-partition", "hot-partition"))},
        "warning",
        "hot-partition x: add partitions (and 1 more)",
        "decisions.md",
    ),
    (
        "rounds",
        {"clusters": heard(findings=section(hot_partition=2))},
        "warning",
        "hot-partition: 2 of them",
        "decisions.md",
    ),
    (
        "rounds",
        {"clusters": heard(brokers_failed={"b4": "timeout"})},
        "warning",
        "cannot ask b4: timeout",
        "no-reports.md",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                other_balancers=OtherBalancers(
                    shedding_brokers=["b1"], splitting_brokers=[], unknown_brokers=[]
                )
            )
        },
        "problem",
        "Pulsar's own shedding is on at b1",
        "--config loadBalancerSheddingEnabled --value false",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                mode="dry-run",
                other_balancers=OtherBalancers(
                    shedding_brokers=[], splitting_brokers=["b1"], unknown_brokers=[]
                ),
            )
        },
        "warning",
        "Pulsar's own splitting of bundles is on at b1",
        "loadBalancerAutoBundleSplitEnabled",
    ),
    (
        "balancers",
        {"clusters": heard(other_balancers=None)},
        "not checked",
        "no collector has reported",
        "trimtab collect pulsar",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                of_kafka(msgspec.structs.replace(THROTTLE, others_rates_bytes_per_s={"leader:1": 5}))
            )
        },
        "warning",
        "another program has set throttles: leader:1",
        "Cruise Control",
    ),
    (
        "rejected",
        {"rejected": RejectedSeen(counts={"not-json": 3}, is_complete=False)},
        "warning",
        "at least 3 records went to trimtab.dead-letter in the last hour: 3 not-json",
        "trimtab rejected tail",
    ),
]
