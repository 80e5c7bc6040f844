"""A bundle with too many clients, over the hours: what it is cut into for good, where every split is carried out."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from policies.splitting.positions import position_of
from policies.splitting.ranges import Bundle
from state.events import ActionResult, Event, LoadReport, TopicStats, TopicTraffic
from state.store import DictStore
from tests.state.pulsar.test_splits import HOT, settings
from tests.state.traces import Run, load, run

TOPICS = [
    name
    for name in (f"persistent://t/n/topic-{number}" for number in range(100))
    if position_of(name) < 0x80000000
][:10]
SETTINGS = settings(max_messages_per_s=1e9, max_sessions_count=1000, hit_count=1, bundle_cooldown_s=30.0)


class Broker:
    """One broker whose bundles are cut as it is told."""

    def __init__(self, sessions: list[int], rates: list[float], *, tells_sessions: bool) -> None:
        self.sessions, self.rates = (
            dict(zip(TOPICS, sessions, strict=True)),
            dict(zip(TOPICS, rates, strict=True)),
        )
        self.tells_sessions = tells_sessions
        self.bundles, self.said = {HOT: TOPICS}, Run()
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
    assert broker.bundles == {HOT: TOPICS}
    assert broker.findings() == {("one-topic", TOPICS[3])}


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
    assert (broker.bundles, broker.findings()) == (parts, {("one-topic", TOPICS[3])})
