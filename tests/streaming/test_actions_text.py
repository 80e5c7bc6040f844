"""Actions as people see them: the line of an action, and the numbers, both sides and what was held back in `why`."""

import json
import re

import pytest

from state.outputs import RoundSummary
from streaming.cli.actions import Action, has_id, leader_text, read_action, read_leader, tail_text, why_text
from streaming.cli.published import Epochs, UnreadableEvent, epoch_of, is_round_of, read_round
from streaming.contract.encode import encode_leader
from tests.streaming.golden import folders, messages

UNLOAD = messages(folders()[0])["trimtab.action.unload.v1"]
SUMMARY = messages(folders()[0])["trimtab.round.v1"]


def action(**data: object) -> Action:
    event = UNLOAD | {"data": UNLOAD["data"] | data}
    return read_action(json.dumps(event).encode())


def summary(**data: object) -> RoundSummary:
    event = SUMMARY | {"data": SUMMARY["data"] | data}
    return read_round(json.dumps(event).encode()).data


def test_a_line_says_when_where_what_and_why():
    assert tail_text(action(), epoch=1, stale=False) == (
        "2026-11-21T13:23:20.000Z lab unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080 "
        f"({UNLOAD['id']})\n    {UNLOAD['data']['reason']}\n"
    )
    assert "where placement chooses" in tail_text(action(destination_broker=None), epoch=1, stale=False)
    assert " [dry-run] " in tail_text(action(dry_run=True), epoch=1, stale=False)
    assert "[epoch 2 is stale: do not obey it]" in tail_text(action(), epoch=2, stale=True)


WHY = """\
unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080
broker-1:8080 is at 62.1 % and broker-2:8080 at 7.6 %, 54.5 points apart with 40 allowed, found in 2 rounds in a row, 2 needed: \
moving shop/orders/0x80000000_0xa0000000 (220 messages/s, 230874 bytes/s)

decided   in round 179526739 of lab, which ended at 2026-11-21T13:23:20.000Z
by        avg-shedder, high-threshold
until     2026-11-21T13:26:20.000Z
requires  owner is broker-1:8080, range is 0x80000000_0xa0000000
"""
BOTH_SIDES = """\
Expected load, after this action and the earlier actions of its round
                                             before       after
  source broker-1:8080       bytes_per_s     650,121.17   419,246.75
  source broker-1:8080       messages_per_s  1,241.796    1,021.596
  destination broker-2:8080  bytes_per_s     160,787.256  391,661.676
  destination broker-2:8080  messages_per_s  152.028      372.227
"""


def test_why_tells_the_sentence_the_numbers_both_sides_and_what_was_held_back():
    text = why_text(action(), summary(), missing="")
    assert text.startswith(WHY)
    assert "  difference_points       54.488\n" in text
    assert BOTH_SIDES in text
    assert "Looked at: 1 below-threshold, 1 fired\n" in text
    assert re.search(
        r"  broker-1:8080 with broker-2:8080  fired +difference_points 54.488, high_usage_points 62", text
    )
    assert "Bundles of the brokers that fired: 3 acted, 7 need-met\n" in text
    assert "shop/clicks/0x00000000_0x20000000  at broker-1:8080  need-met  164.2 messages/s" in text
    others = [other for other in SUMMARY["data"]["actions"] if other != UNLOAD["id"]]
    assert f"Other actions of the round: {', '.join(others)}\n" in text


def test_why_without_the_summary_says_so_and_calls_what_it_cannot_know_unknown():
    text = why_text(action(), None, missing="the summary is gone")
    assert text.startswith(WHY)
    assert text.endswith("\nthe summary is gone\n")
    assert "source broker-1:8080       messages_per_s  unknown" in text


def test_why_counts_what_it_does_not_show():
    rows = SUMMARY["data"]["candidates"]["heaviest"]
    many = {
        "count": 130,
        "outcomes": {"need-met": 130},
        "heaviest": [{**rows[0], "bundle": f"t/n/{i}"} for i in range(30)],
    }
    assert "  and 110 more, counted above\n" in why_text(action(), summary(candidates=many), missing="")


def test_why_names_who_changed_the_settings_in_force():
    by = {
        "id": "c",
        "time": "2026-11-21T13:00:00.000Z",
        "who": "maria",
        "why": "the sale",
        "arrived_late": False,
        "resumed_at": None,
        "problem": None,
    }
    assert "  control   maria: the sale\n" in why_text(action(), summary(control=by), missing="")


def test_an_action_of_a_kind_that_is_not_known_yet_is_shown_all_the_same():
    data = {name: value for name, value in UNLOAD["data"].items() if not name.endswith("_broker")}
    event = UNLOAD | {"type": "trimtab.action.throttle.v1", "subject": "reassignments", "data": data}
    read = read_action(json.dumps(event).encode())
    assert tail_text(read, epoch=None, stale=False).startswith(
        "2026-11-21T13:23:20.000Z lab throttle reassignments ("
    )
    assert why_text(read, None, missing="")


def test_a_split_says_where_it_cuts_what_and_what_each_child_takes_over():
    split = messages(folders()[-1])["trimtab.action.split.v1"]
    read = read_action(json.dumps(split).encode())
    assert f" split {split['subject']} at {split['data']['broker']} (" in tail_text(
        read, epoch=1, stale=False
    )
    text = why_text(read, None, missing="")
    for child, load in split["data"]["expected"].items():
        assert f"  {child}  bytes_per_s " in text
        assert load["bytes_per_s"] > 0


def test_a_summary_that_cannot_be_read_is_not_taken_for_a_missing_one():
    broken = SUMMARY | {"data": {"round": 7}}
    value = json.dumps(broken).encode()
    assert is_round_of(value, cluster=SUMMARY["cluster"], number=7)
    assert not is_round_of(value, cluster=SUMMARY["cluster"], number=8)
    with pytest.raises(UnreadableEvent, match=r"not a trimtab\.round\.v1: .*another version of trimtab"):
        read_round(value)


@pytest.mark.parametrize("value", [b"junk", b"{}", json.dumps(SUMMARY).encode()])
def test_a_record_that_is_no_action_is_named_and_never_shown_as_one(value: bytes):
    with pytest.raises(UnreadableEvent):
        read_action(value)


@pytest.mark.parametrize(
    ("headers", "epoch"),
    [
        ([("trimtab-epoch", b"12")], 12),
        ([], None),
        ([("trimtab-epoch", b"x")], None),
        ([("other", b"1")], None),
    ],
)
def test_the_epoch_is_read_from_its_header(headers: list[tuple[str, bytes]], epoch: int | None):
    assert epoch_of(headers) == epoch


def test_an_epoch_is_stale_only_below_the_highest_of_its_source_and_partition():
    epochs = Epochs()
    said = [("a", 0, 2), ("other", 0, 1), ("a", 0, 3), ("a", 1, 2), ("a", 0, 2), ("a", 0, 3), ("a", 0, None)]
    assert [epochs.is_stale(*each) for each in said] == [False, False, False, False, True, False, False]


def test_a_take_over_is_told_in_a_line_and_is_no_action():
    value = encode_leader("main", epoch=7, time_ms=0)
    leader = read_leader(value)
    assert leader_text(leader) == "1970-01-01T00:00:00.000Z controller main has a new leader, epoch 7\n"
    assert not has_id(value, leader.id), "`actions why` looks for actions"
    assert read_leader(json.dumps(UNLOAD).encode()) is None
    assert read_leader(b"junk") is None


def test_an_action_is_found_by_the_beginning_of_its_id():
    value = json.dumps(UNLOAD).encode()
    assert has_id(value, UNLOAD["id"][:6])
    assert not has_id(value, UNLOAD["id"][1:7])
    assert not has_id(b"junk", "jun")
