"""Splits that a round decides, by each measure that a bundle can be too big in."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from policies.splitting.ranges import Bundle, position_of
from state.events import ActionResult, Event, LoadReport, TopicStats, TopicTraffic
from state.settings import SettingsSource
from state.store import DictStore
from tests.state.traces import COLD, EVEN, HOT, HOT_TOPICS, Run, load, run, split_settings, topic_stats


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


def test_a_bundle_above_a_limit_is_cut_with_its_reason_and_the_load_of_its_children() -> None:
    found = played(split_settings(), EVEN)
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
    found = played(split_settings(hit_count=2), EVEN, rounds=2)
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
    one, other = HOT_TOPICS[:2]
    row = row_of(played(split_settings(**limits), {one: (190.0, 180.0), other: (10.0, 1820.0)}))
    assert (row["outcome"], row["trigger"]) == ("one-topic", trigger)
    assert row["detail"] == f"{HOT_TOPICS[topic]} carries {share} of it: a split cannot help"


def test_without_statistics_of_its_topics_a_bundle_waits() -> None:
    found = played(split_settings(without_topic_stats="hold"), None)
    row = row_of(found)
    assert row["detail"] == "no statistics of its topics came in this round; without_topic_stats holds it"
    assert found.actions == []


def test_a_cut_by_range_says_nothing_of_the_load_of_its_children() -> None:
    found = played(split_settings(without_topic_stats="range", algorithm="range_equally_divide"), None)
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
    found = played(split_settings(bundle_cooldown_s=3600.0), EVEN, rounds=3)
    assert len(found.actions) == 1
    assert [summary["splits"]["outcomes"] for summary in found.summaries[1:]] == [{"in-flight": 1}] * 2


SESSION_TOPICS = [
    name
    for name in (f"persistent://t/n/topic-{number}" for number in range(100))
    if position_of(name) < 0x80000000
][:10]
SETTINGS = split_settings(
    max_messages_per_s=1e9, max_sessions_count=1000, hit_count=1, bundle_cooldown_s=30.0
)


class Broker:
    """One broker whose bundles are cut as it is told."""

    def __init__(self, sessions: list[int], rates: list[float], *, tells_sessions: bool) -> None:
        self.sessions, self.rates = (
            dict(zip(SESSION_TOPICS, sessions, strict=True)),
            dict(zip(SESSION_TOPICS, rates, strict=True)),
        )
        self.tells_sessions = tells_sessions
        self.bundles, self.said = {HOT: SESSION_TOPICS}, Run()
        self.store, self.played = DictStore(), 0

    def play(self, rounds: int) -> None:
        """So many rounds of ten seconds; each split is carried out before the next round."""
        for number in range(self.played, self.played + rounds):
            events: list[Event] = [*self._events(10 * number + 5), load("b2", 10 * number + 5)]
            seen = len(self.said.outputs)
            self.said.outputs += run([events], SETTINGS, store=self.store, is_closed=False).outputs
            for output in self.said.outputs[seen:]:
                if output.kind == "action":
                    self._cut(output.subject, json.loads(output.data)["boundaries"])
                    result = ActionResult(
                        id=output.id, time_ms=output.time_ms, action_id=output.id, outcome="succeeded"
                    )
                    run([[result]], SETTINGS, store=self.store, is_closed=False)

        self.played += rounds

    def _cut(self, name: str, boundaries: list[int]) -> None:
        topics = self.bundles.pop(name)
        for child in Bundle.parse(name).cut(boundaries):
            self.bundles[str(child)] = [each for each in topics if child.range.contains(position_of(each))]

    def _events(self, time_s: float) -> tuple[LoadReport, TopicStats]:
        inside = dict(sorted(self.bundles.items()))
        rates = {name: sum(self.rates[each] for each in topics) for name, topics in inside.items()}
        found = load("b1", time_s, bundles=rates)
        counts = [[len(topics), sum(self.sessions[each] for each in topics)] for topics in inside.values()]
        names = [each for topics in inside.values() for each in topics]
        told = np.array([self.sessions[each] if self.tells_sessions else 0 for each in names])
        traffic = TopicTraffic(
            bundles=list(inside),
            counts=np.array([len(topics) for topics in inside.values()]),
            topics=names,
            messages_per_s=np.array([self.rates[each] for each in names]),
            bytes_per_s=10 * np.array([self.rates[each] for each in names]),
            sessions=told,
        )
        report = replace(found.report, counts=np.array(counts, dtype=np.int64))
        stats = TopicStats(id=f"s/{time_s}", time_ms=found.time_ms, broker="b1", traffic=traffic)
        return msgspec.structs.replace(found, report=report), stats

    def findings(self) -> set[tuple[str, str]]:
        """Kind and subject of the last round's findings."""
        return {(each["kind"], each["subject"]) for each in self.said.summaries[-1]["findings"]["heaviest"]}


OF_ONE = [4, 4, 4, 40_000, 4, 4, 4, 4, 4, 4]
EVENLY = [400] * 10


def test_where_one_topic_has_the_clients_nothing_is_cut_and_a_finding_names_it() -> None:
    broker = Broker(OF_ONE, [10.0] * 10, tells_sessions=True)
    broker.play(40)
    assert broker.bundles == {HOT: SESSION_TOPICS}
    assert broker.findings() == {("one-topic", SESSION_TOPICS[3])}


@pytest.mark.parametrize("rates", [[10.0] * 10, [5.0] * 3 + [200.0] + [5.0] * 6, [200.0] + [5.0] * 9])
def test_where_it_is_not_known_whose_the_clients_are_two_boundaries_are_the_most(rates: list[float]) -> None:
    broker = Broker(OF_ONE, rates, tells_sessions=False)
    broker.play(80)
    assert len(broker.bundles) <= 3
    rows = broker.said.summaries[-1]["splits"]["heaviest"]
    assert [row["outcome"] for row in rows] == ["sole-topic" if rates[3] == 200.0 else "no-topic-stats"]
    assert not rows[0]["detail"].startswith("no statistics")


@pytest.mark.parametrize("tells_sessions", [True, False])
def test_clients_that_are_spread_over_the_topics_are_divided(tells_sessions: bool) -> None:  # noqa: FBT001
    broker = Broker(EVENLY, [10.0] * 10, tells_sessions=tells_sessions)
    broker.play(80)
    most = max(sum(broker.sessions[each] for each in topics) for topics in broker.bundles.values())
    assert most <= 1000


def test_once_the_clients_are_known_by_topic_the_part_that_kept_them_is_judged_by_that() -> None:
    broker = Broker(OF_ONE, [10.0] * 10, tells_sessions=False)
    broker.play(40)
    parts = broker.bundles
    assert broker.findings() == set()
    broker.tells_sessions = True
    broker.play(40)
    assert (broker.bundles, broker.findings()) == (parts, {("one-topic", SESSION_TOPICS[3])})
