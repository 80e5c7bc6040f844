"""What a round says of the bundles that stand out for a split, and the actions that cut them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from policies.splitting.ranges import position_of
from state.events import Event, TopicStats, TopicTraffic
from state.settings import SettingsSource
from tests.state.traces import Run, load, run, settings_of

HOT, COLD = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
TOPICS = [
    name
    for name in (f"persistent://t/n/topic-{number}" for number in range(60))
    if position_of(name) < 0x80000000
][:4]
"""Topics of the hot bundle."""


def settings(**split: Any) -> SettingsSource:
    limits = {"max_messages_per_s": 100.0, "max_bytes_per_s": 1e9, "max_topics_count": 1000}
    found = {"enabled": True, "hit_count": 0, "average_samples": 1} | limits | split
    return settings_of(
        rounds={"warmup_rounds": 0},
        bundle_average_samples=1,
        split=found,
        avg_shedder={"low_threshold_points": 99.0, "high_threshold_points": 99.0},
    )


def topic_stats(time_s: float, rates: Mapping[str, tuple[float, float]]) -> TopicStats:
    """Messages and bytes a second of each topic of the hot bundle."""
    return TopicStats(
        id=f"stats/{time_s:g}",
        time_ms=round(1000 * time_s),
        broker="b1",
        traffic=TopicTraffic(
            bundles=[HOT],
            counts=np.array([len(rates)]),
            topics=list(rates),
            messages_per_s=np.array([messages for messages, _ in rates.values()]),
            bytes_per_s=np.array([volume for _, volume in rates.values()]),
            sessions=np.zeros(len(rates), dtype=np.int64),
        ),
    )


def played(
    source: SettingsSource, rates: Mapping[str, tuple[float, float]] | None, *, rounds: int = 1
) -> Run:
    """Rounds in which the hot bundle has 200 messages/s and 2,000 bytes/s."""
    events: list[Event] = []
    for number in range(rounds):
        time_s = 10 * number + 5
        events.append(load("b1", time_s, bundles={HOT: 200.0, COLD: 1.0}, topics_count=4))
        events.append(load("b2", time_s))
        events += [] if rates is None else [topic_stats(time_s, rates)]
    return run([events], source)


def row_of(found: Run, number: int = 0) -> dict[str, Any]:
    """The hot bundle's row in the summary of a round."""
    (row,) = found.summaries[number]["splits"]["heaviest"]
    assert row["bundle"] == HOT
    return dict(row)


EVEN = dict.fromkeys(TOPICS, (50.0, 500.0))


def test_a_bundle_above_a_limit_is_cut_with_its_reason_and_the_load_of_its_children() -> None:
    found = played(settings(), EVEN)
    (action,) = found.actions
    assert action["reason"].startswith(
        f"{HOT} has 200 messages/s, 100 are allowed, found in 1 round, 1 needed"
    )
    assert (action["policy"], action["trigger"], action["broker"]) == ("bundle-split", "messages", "b1")
    assert action["precondition"] == {"owner": "b1", "range": "0x00000000_0x80000000"}
    assert len(action["children"]) == len(action["boundaries"]) + 1
    assert sum(child["topics_count"] for child in action["children"]) == 4
    assert sum(child["messages_per_s"] for child in action["children"]) == 200.0
    assert sum(child["bytes_per_s"] for child in action["children"]) == 2000.0
    assert action["expected"] == {
        child["range"]: {name: child[name] for name in ("messages_per_s", "bytes_per_s")}
        for child in action["children"]
    }
    assert found.summaries[0]["splits"]["outcomes"] == {"acted": 1}


def test_a_bundle_that_stood_out_too_seldom_is_counted() -> None:
    found = played(settings(hit_count=2), EVEN, rounds=2)
    assert [row_of(found, number)["detail"] for number in range(2)] == ["hit-count 1/3", "hit-count 2/3"]
    assert [row_of(found, number)["outcome"] for number in range(2)] == ["hit-count", "hit-count"]
    assert found.actions == []


@pytest.mark.parametrize(
    ("limits", "trigger", "share", "topic"),
    [
        ({"max_messages_per_s": 100.0}, "messages", "95%", 0),
        ({"max_messages_per_s": 1e9, "max_bytes_per_s": 100.0}, "bytes", "91%", 1),
    ],
)
def test_a_topic_that_carries_the_load_is_named_with_its_share_of_what_is_above_the_limit(
    limits: dict[str, float], trigger: str, share: str, topic: int
) -> None:
    one, other = TOPICS[:2]
    row = row_of(played(settings(**limits), {one: (190.0, 180.0), other: (10.0, 1820.0)}))
    assert (row["outcome"], row["trigger"]) == ("one-topic", trigger)
    assert row["detail"] == f"{TOPICS[topic]} carries {share} of it: a split cannot help"


def test_without_statistics_of_its_topics_a_bundle_waits() -> None:
    found = played(settings(without_topic_stats="hold"), None)
    row = row_of(found)
    assert row["detail"] == "no statistics of its topics came in this round; without_topic_stats holds it"
    assert found.actions == []


def test_a_cut_by_range_says_nothing_of_the_load_of_its_children() -> None:
    found = played(settings(without_topic_stats="range", algorithm="range_equally_divide"), None)
    (action,) = found.actions
    assert action["boundaries"] == [0x40000000]
    assert action["expected"] == {}
    assert (
        action["reason"].endswith("it is cut in two equal ranges at 0x40000000")
        or "0x40000000" in action["reason"]
    )
    assert [child["topics_count"] for child in action["children"]] == [None, None]
    assert [child["messages_per_s"] for child in action["children"]] == [None, None]
    assert [child["bytes_per_s"] for child in action["children"]] == [None, None]


def test_a_bundle_that_was_split_is_not_split_again_while_it_rests() -> None:
    found = played(settings(bundle_cooldown_s=3600.0), EVEN, rounds=3)
    assert len(found.actions) == 1
    assert [summary["splits"]["outcomes"] for summary in found.summaries[1:]] == [{"in-flight": 1}] * 2
