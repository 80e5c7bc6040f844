"""The recording of a real cluster: trimtab sees and answers what was done to that cluster by hand."""

import gzip
import io
import json
from collections import defaultdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from state.closing import Identity
from state.events import is_system_bundle
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, load

RECORDINGS = Path(__file__).parents[1] / "recordings"
RECORDING, CONFIG = RECORDINGS / "pulsar-3-brokers.ndjson.gz", RECORDINGS / "pulsar-3-brokers.toml"
LENGTH_S = 10
MOVED_S, SURGE_S, DEATH_S, RETURN_S = 90, 240, 360, 450
"""What was done to the cluster, in seconds from the recording's start."""
HOT_TOPIC = "persistent://shop/orders/created-partition-0"

Event = dict[str, Any]


@cache
def events() -> list[Event]:
    with gzip.open(RECORDING) as stream:
        return [json.loads(line) for line in stream]


@cache
def played(*flags: tuple[str, object]) -> bytes:
    settings = load(file=CONFIG, flags=dict(flags), environ={}).settings
    out = io.BytesIO()
    replay = Replay(
        out,
        name="trimtab",
        identity=Identity(),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
    )
    with gzip.open(RECORDING) as stream:
        replay.play(io.BytesIO(stream.read()), RECORDING.name)
    replay.close_open()
    assert replay.tally.of("rejected") == 0
    return out.getvalue()


@cache
def rounds() -> list[Event]:
    return [
        line["data"] for line in map(json.loads, played().splitlines()) if line["type"] == "trimtab.round.v1"
    ]


@cache
def actions() -> list[Event]:
    return [
        line["data"] for line in map(json.loads, played().splitlines()) if line["type"] != "trimtab.round.v1"
    ]


def number_at(second: float) -> int:
    """Number of the round that holds this time, in seconds from the recording's start."""
    begin_s = datetime.fromisoformat(events()[0]["time"]).timestamp()
    return int((begin_s + second) // LENGTH_S)


def test_moves_by_hand_are_answered_within_three_rounds():
    moved = number_at(MOVED_S)
    answers = [action for action in actions() if moved <= action["round"] <= moved + 3]
    assert answers
    assert {(each["source_broker"], each["destination_broker"]) for each in answers} == {
        ("broker-1:8080", "broker-2:8080")
    }


def test_nothing_is_unloaded_before_the_moves():
    assert [action for action in actions() if action["round"] < number_at(MOVED_S)] == []


def test_the_hot_bundle_of_the_surge_is_held_because_it_is_too_big():
    hot = {
        bundle
        for event in events()
        if event["type"] == "trimtab.pulsar.topic-stats.v1"
        for bundle, topics in event["data"].items()
        if HOT_TOPIC in topics
    }
    assert len(hot) == 1
    held = [
        (row["broker"], row["outcome"])
        for summary in rounds()
        if number_at(SURGE_S) <= summary["round"] < number_at(DEATH_S)
        for row in summary["candidates"]["heaviest"]
        if row["bundle"] in hot
    ]
    assert ("broker-3:8080", "too-big") in held
    assert {outcome for _, outcome in held} == {"too-big"}
    assert not [action for action in actions() if action["bundle"] in hot]


def test_the_dead_broker_is_named_missing_within_four_rounds_and_back_when_it_returns():
    missing = [each["round"] for each in rounds() if "broker-3:8080" in each["brokers_missing"]]
    assert number_at(DEATH_S) < missing[0] <= number_at(DEATH_S) + 4
    assert max(missing) < number_at(RETURN_S) + 4
    assert "broker-3:8080" in rounds()[-1]["brokers_reporting"]
    for action in actions():
        (summary,) = [each for each in rounds() if each["round"] == action["round"]]
        assert {action["source_broker"], action["destination_broker"]} <= set(summary["brokers_reporting"])


def test_no_bundle_is_counted_at_two_brokers():
    newest: dict[int, dict[str, Event]] = defaultdict(dict)
    for event in events():
        if event["type"] == "trimtab.pulsar.load-report.v1":
            number = int(datetime.fromisoformat(event["time"]).timestamp() // LENGTH_S)
            newest[number][event["subject"]] = event["data"]
    for summary in rounds():
        listed = [
            bundle
            for data in newest[summary["round"]].values()
            for bundle in data["bundles"]
            if not is_system_bundle(bundle)
        ]
        assert sum(row["bundles_count"] for row in summary["brokers"]) == len(set(listed))


def test_bundles_of_pulsar_itself_never_appear():
    assert b'"pulsar/' not in played()
    assert b"sla-monitor" not in played()


def test_every_round_is_summed_up_and_every_outcome_counted():
    numbers = [summary["round"] for summary in rounds()]
    assert numbers == list(range(number_at(0), number_at(0) + len(numbers)))
    for summary in rounds():
        for section in (summary["examined"], summary["candidates"]):
            assert sum(section["outcomes"].values()) == section["count"]


SPLITTING = (("pulsar.split.enabled", True), ("pulsar.split.hit_count", 1))
"""Limits are far above what the recorded cluster carries; the tests lower them."""


def split_story(max_messages_per_s: float) -> tuple[list[Event], list[Event]]:
    """Split actions and summaries with this limit of a bundle."""
    lines = played(*SPLITTING, ("pulsar.split.max_messages_per_s", max_messages_per_s)).splitlines()
    found = [json.loads(line) for line in lines]
    splits = [event["data"] for event in found if event["type"] == "trimtab.action.split.v1"]
    return splits, [event["data"] for event in found if event["type"] == "trimtab.round.v1"]


def test_in_the_surge_the_hot_bundle_is_not_split_but_the_topic_that_carries_it_named():
    splits, summaries = split_story(1000)
    rows = [row for summary in summaries for row in summary["splits"]["heaviest"]]
    shown = {row["detail"] for row in rows if row["outcome"] == "one-topic"}
    assert splits == []
    assert {row["outcome"] for row in rows} == {"no-topic-stats", "one-topic"}
    assert shown == {detail for detail in shown if detail.startswith(f"{HOT_TOPIC} carries 9")}
    assert shown


def test_below_its_load_the_same_bundle_is_cut_once_and_the_hot_topic_gets_a_bundle_of_its_own():
    splits, summaries = split_story(300)
    assert [split["bundle"] for split in splits] == ["shop/orders/0x60000000_0x80000000"]
    cut = splits[0]
    alone = [child for child in cut["children"] if child["topics_count"] == 1]
    assert len(alone) == 1
    lower, upper = (int(edge, 16) for edge in alone[0]["range"].split("_"))
    assert lower <= crc32(HOT_TOPIC.encode()) < upper
    assert alone[0]["range"] in cut["expected"]
    assert f"{HOT_TOPIC} alone" in cut["reason"]
    decided = next(summary for summary in summaries if summary["round"] == cut["round"])
    assert decided["splits"]["outcomes"]["acted"] == 1
    assert cut["precondition"]["owner"] in decided["brokers_reporting"]
