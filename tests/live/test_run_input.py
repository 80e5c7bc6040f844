"""Input that is not the ordinary case: what cannot be used is in the dead letter, and the stream goes on."""

import json

import pytest

from tests.streaming.events import control, report, traffic
from tests.support.loads import closing, leaning, played
from tests.support.operating import output_of
from tests.support.processes import TRIMTAB, Child, Warm, command
from tests.support.stage import Stage, replayed

pytestmark = pytest.mark.live

SMALL_RECORD_BYTES = 20_000


def test_what_cannot_be_used_is_in_the_dead_letter_and_the_stream_goes_on(stage: Stage, warm: Warm):
    config = stage.settings(controller__max_record_bytes=SMALL_RECORD_BYTES)
    odd = [
        (b"east-1", b"junk", "not-json"),
        (b"other", leaning(0)[0], "cluster-mismatch"),
        (None, leaning(0)[0], "cluster-mismatch"),
        (b"no such name!", leaning(0)[0], "cluster-mismatch"),
        (b"east-1", b"x" * (SMALL_RECORD_BYTES + 1), "too-large"),
        (b"east-1", control(time_s=0, data={"paused": True}), "wrong-topic"),
        (b"east-1", None, "not-json"),
    ]
    before, after, later = played(range(2)), played([2]), played(range(40, 44))
    wanted = replayed(config, [*before, *after, *later])
    stage.send(before)
    for key, value, _ in odd:
        stage.send_raw(key, value)
    stage.send(after)
    stage.send([leaning(1)[0]], to=stage.topics.control)
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 3, running=[run])
        stage.wait_for(stage.topics.dead_letter, len(odd) + 1, running=[run])
        stage.send(later)
        stage.wait_for_outputs(wanted, running=[run])

    assert stage.published() == wanted
    assert wanted.actions_count == 2, "hits begin anew after the silence: the third of each stretch fires"
    assert [json.loads(value)["data"]["restarted"] for value in wanted.rounds["east-1"][2:5]] == [
        False,
        True,
        False,
    ]
    found = {(letter["topic"], letter["partition"], letter["offset"]): letter for letter in stage.rejected()}
    assert len(found) == len(odd) + 1
    for place, (_, _, reason) in enumerate(odd):
        assert found[stage.topics.input, 0, len(before) + place]["reason"] == reason
    assert found[stage.topics.control, 0, 0]["reason"] == "wrong-topic"
    assert found[stage.topics.input, 0, len(before) + 4]["size_bytes"] == SMALL_RECORD_BYTES + 1

    lines = output_of(config, "rejected", "tail", "--from", "earliest", "--no-follow").splitlines()
    assert len(lines) == len(odd) + 1
    place = f"{stage.topics.input}/0@{len(before)}"
    assert any(f"{place} not-json: " in line for line in lines)
    assert output_of(config, "rejected", "show", place).endswith("It begins with\n\njunk\n")
    assert "no rejected record nowhere/0@0 on" in output_of(config, "rejected", "show", "nowhere/0@0", code=8)


@pytest.mark.slow
def test_a_report_of_a_hundred_thousand_bundles_is_taken(stage: Stage, warm: Warm):
    config = stage.settings()
    bundles = {
        f"tenant/namespace-{number // 16:05d}/0x{number % 16:x}0000000_0x{number % 16 + 1:x}0000000".replace(
            "0x100000000", "0xffffffff"
        ): traffic(1.0)
        for number in range(100_000)
    }
    events = []
    for number in range(2):
        usual = leaning(number)
        events += [
            *usual,
            report("huge:8080", time_s=1_700_000_003 + 10 * number, cpu=(40.0, 100.0), bundles=bundles),
        ]
        events.append(closing(number))
    wanted = replayed(config, events)
    stage.send(events)
    with warm.run(config) as run:
        stage.wait_for_outputs(wanted, running=[run])
    assert stage.published() == wanted
    assert stage.rejected() == []
    heaviest = json.loads(wanted.rounds["east-1"][0])["data"]["brokers"]
    assert {broker["broker"]: broker["bundles_count"] for broker in heaviest}["huge:8080"] == 100_000


@pytest.mark.slow
def test_a_thousand_brokers_that_appear_at_once_are_decided_as_in_replay(stage: Stage, warm: Warm):
    config = stage.settings()
    events = [value for number in range(3) for value in (*leaning(number, brokers=1000), closing(number))]
    wanted = replayed(config, events)
    assert wanted.actions_count > 0
    with warm.run(config) as run:
        stage.send(events)
        stage.wait_for_outputs(wanted, running=[run])
    assert stage.published() == wanted


def test_a_made_up_fleet_that_is_fed_leads_to_decisions_on_ones_own_kafka(stage: Stage, warm: Warm):
    stage.create_topics()
    config = stage.settings(base="[pulsar.rounds]\nlength_s = 5\nlateness_s = 1\n")
    with warm.run(config) as run:
        assert run.url
        log = stage.directory / "feed.log"
        with Child((*TRIMTAB, "feed", "--config", str(config), "--fast"), log) as feeding:
            (value, *_) = stage.wait_for(stage.topics.actions, 1, running=[run, feeding])
            assert feeding.terminate() == 0
    assert "feeding the cluster sample, until Ctrl-C, to kafka://" in log.read_text()
    assert json.loads(value)["data"]["source_broker"] == "broker-1:8080"
    assert "sample (pulsar): acts, round " in command("status", "--config", str(config)).output
