"""Actions as people see them: a line of `trimtab actions tail`, and the page of `trimtab actions why`."""

import json
import re

import pytest

from state.outputs import RoundSummary
from streaming.cli.actions import Action, has_id, leader_text, read_action, read_leader, tail_text, why_text
from streaming.cli.published import (
    UnreadableEvent,
    read_round,
)
from streaming.contract.encode import encode_leader
from streaming.process.exits import REFUSED
from tests.streaming.golden import folders, messages
from tests.streaming.topics import ACTION, run

UNLOAD_EVENT = messages(folders()[0])["trimtab.action.unload.v1"]
ROUND_EVENT = messages(folders()[0])["trimtab.round.v1"]


def action(**data: object) -> Action:
    event = UNLOAD_EVENT | {"data": UNLOAD_EVENT["data"] | data}
    return read_action(json.dumps(event).encode())


def summary(**data: object) -> RoundSummary:
    event = ROUND_EVENT | {"data": ROUND_EVENT["data"] | data}
    return read_round(json.dumps(event).encode()).data


def test_a_line_says_when_where_what_and_why():
    assert tail_text(action(), epoch=1, stale=False) == (
        "2026-11-21T13:23:20Z lab unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080 "
        f"({UNLOAD_EVENT['id']})\n    {UNLOAD_EVENT['data']['reason']}\n"
    )
    assert "where placement chooses" in tail_text(action(destination_broker=None), epoch=1, stale=False)
    assert " [dry-run] " in tail_text(action(dry_run=True), epoch=1, stale=False)
    assert "[epoch 2 is stale: do not obey it]" in tail_text(action(), epoch=2, stale=True)


WHY = """\
unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080
broker-1:8080 is at 62.1 % and broker-2:8080 at 7.6 %, 54.5 points apart with 40 allowed, found in 2 rounds in a row, 2 are enough: \
moving shop/orders/0x80000000_0xa0000000 (220 messages/s, 230874 bytes/s)

decided   in round 179526739 of lab, which ended at 2026-11-21T13:23:20Z
by        avg-shedder, high-threshold
until     2026-11-21T13:26:20Z
requires  owner is broker-1:8080, range is 0x80000000_0xa0000000
"""
BOTH_SIDES = """\
Expected load, after this action and the earlier actions of its round
                                             before   after
  source broker-1:8080       bytes_per_s     650,121  419,247
  source broker-1:8080       messages_per_s  1,242    1,022
  destination broker-2:8080  bytes_per_s     160,787  391,662
  destination broker-2:8080  messages_per_s  152      372
"""


def test_why_tells_the_sentence_the_numbers_both_sides_and_what_was_held_back():
    text = why_text(action(), summary(), missing="")
    assert text.startswith(WHY)
    assert "  difference_points       54.5\n" in text
    assert BOTH_SIDES in text
    assert "Looked at: 1 below-threshold, 1 fired\n" in text
    assert re.search(
        r"  broker-1:8080 with broker-2:8080  fired +difference_points 54.5, high_usage_points 62", text
    )
    assert "Other bundles of the brokers that fired: 2 acted, 7 need-met\n" in text
    assert "shop/clicks/0x00000000_0x20000000  at broker-1:8080  need-met  164 messages/s" in text
    others = [other for other in ROUND_EVENT["data"]["actions"] if other != UNLOAD_EVENT["id"]]
    assert f"Other actions of the round: {', '.join(others)}\n" in text


def test_why_without_the_summary_says_so_and_calls_what_it_cannot_know_unknown():
    text = why_text(action(), None, missing="the summary is gone")
    assert text.startswith(WHY)
    assert text.endswith("\nthe summary is gone\n")
    assert "source broker-1:8080       messages_per_s  unknown" in text


def test_why_counts_what_it_does_not_show():
    rows = ROUND_EVENT["data"]["candidates"]["heaviest"]
    many = {
        "count": 130,
        "outcomes": {"need-met": 130},
        "heaviest": [{**rows[0], "bundle": f"t/n/{i}"} for i in range(30)],
    }
    assert "  and 110 more, counted above\n" in why_text(action(), summary(candidates=many), missing="")


def test_why_compares_with_no_measured_load_where_a_dry_run_has_moved_bundles():
    usage = {"mean_points": 50.0, "max_points": 60.0, "stdev_points": 1.0}
    text = why_text(action(), summary(shadow={"count": 3, "usage": usage, "heaviest": []}), missing="")
    assert re.search(r"\n +after \(as if the dry-run had moved 3 bundles\)\n", text)
    assert re.search(r"source broker-1:8080 +bytes_per_s +419,247\n", text), (
        "before, it was measured without them"
    )
    assert "Looked at (as if the dry-run had moved 3 bundles): 1 below-threshold, 1 fired\n" in text
    assert "of the brokers that fired (as if the dry-run had moved 3 bundles): 2 acted" in text


PROPOSAL = UNLOAD_EVENT | {"data": UNLOAD_EVENT["data"] | {"dry_run": True, "proposal": True}}
ANSWER = {
    "id": "approval/1", "proposal_id": PROPOSAL["id"], "kind": "unload", "verdict": "approved", "who": "ann", "why": "looks right",
    "outcome": "acted", "detail": "acted", "action_id": "a1b2c3",
}  # fmt: skip
GONE = {"outcome": "owner-changed", "detail": "it is at broker-3:8080 now", "action_id": None}
NUMBER = ROUND_EVENT["data"]["round"]


@pytest.mark.parametrize(
    ("answers", "expired", "said"),
    [
        ([], [], "carried out only after `trimtab approve`"),
        ([{**ANSWER, "proposal_id": "another"}], [], "carried out only after `trimtab approve`"),
        ([ANSWER], [], f"approved by ann in round {NUMBER} (looks right), carried out as action a1b2c3"),
        (
            [{**ANSWER, **GONE}],
            [],
            f"approved by ann in round {NUMBER} (looks right), but no action was published: it is at broker-3:8080 now",
        ),
        (
            [{**ANSWER, **GONE, "verdict": "rejected", "outcome": "rejected"}],
            [],
            f"rejected by ann in round {NUMBER} (looks right)",
        ),
        ([], [PROPOSAL["id"]], f"it ended without an answer in round {NUMBER}"),
    ],
)
def test_why_of_a_proposal_says_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, answers: list[object], expired: list[str], said: str
):
    approval = {"open_count": 0, "open": [], "expired": expired, "answers": answers}
    counted = ROUND_EVENT | {"data": ROUND_EVENT["data"] | {"approval": approval}}
    values = [json.dumps(each).encode() for each in (PROPOSAL, ROUND_EVENT, counted)]
    done = run(monkeypatch, values, "actions", "why", PROPOSAL["id"][:8])
    assert f"(a proposal: {said})\n" in done.stdout, done.output


def test_why_of_a_proposal_names_the_other_proposals_of_its_round():
    row = {
        "kind": "unload",
        "bundle": "t/n/1",
        "source_broker": "b1",
        "destination_broker": None,
        "expires_at": "",
    }
    rows = [{**row, "id": f"other-{of}", "round": of} for of in (NUMBER, NUMBER - 1)]
    approval = {"open_count": 2, "open": rows, "expired": [], "answers": []}
    text = why_text(action(dry_run=True, proposal=True), summary(approval=approval), missing="")
    assert f"Other proposals of the round: other-{NUMBER}\n" in text


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
    data = {name: value for name, value in UNLOAD_EVENT["data"].items() if not name.endswith("_broker")}
    event = UNLOAD_EVENT | {"type": "trimtab.action.throttle.v1", "subject": "reassignments", "data": data}
    read = read_action(json.dumps(event).encode())
    assert tail_text(read, epoch=None, stale=False).startswith(
        "2026-11-21T13:23:20Z lab throttle reassignments ("
    )
    assert why_text(read, None, missing="")


def test_a_split_says_where_it_cuts_what_and_what_each_child_takes_over():
    split = messages(folders()[-1])["trimtab.action.split.v1"]
    read = read_action(json.dumps(split).encode())
    assert f" split {split['subject']} at {split['data']['broker']} (" in tail_text(
        read, epoch=1, stale=False
    )
    text = why_text(read, None, missing="")
    for child, carried in split["data"]["expected"].items():
        assert f"  {child}  bytes_per_s " in text
        assert carried["bytes_per_s"] > 0


@pytest.mark.parametrize("value", [b"junk", b"{}", json.dumps(ROUND_EVENT).encode()])
def test_a_record_that_is_no_action_is_named_and_never_shown_as_one(value: bytes):
    with pytest.raises(UnreadableEvent):
        read_action(value)


def test_a_take_over_is_told_in_a_line_and_is_no_action():
    value = encode_leader("main", epoch=7, time_ms=0)
    leader = read_leader(value)
    assert leader_text(leader) == "1970-01-01T00:00:00Z controller main has a new leader, epoch 7\n"
    assert not has_id(value, leader.id), "`actions why` looks for actions"
    assert read_leader(json.dumps(UNLOAD_EVENT).encode()) is None
    assert read_leader(b"junk") is None


def test_an_action_is_found_by_the_beginning_of_its_id():
    value = json.dumps(UNLOAD_EVENT).encode()
    assert has_id(value, UNLOAD_EVENT["id"][:6])
    assert not has_id(value, UNLOAD_EVENT["id"][1:7])
    assert not has_id(b"junk", "jun")


def test_why_names_an_action_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch):
    broken = ACTION | {"data": {"round": 7}}
    done = run(monkeypatch, [json.dumps(broken).encode()], "actions", "why", ACTION["id"])
    assert done.exit_code == REFUSED, (done.output, done.exception)
    assert "trimtab.actions, offset 0: not an action: " in done.stderr
    assert "it may be from another version of trimtab" in done.stderr


def test_people_are_told_who_leads_and_programs_get_actions_alone(monkeypatch: pytest.MonkeyPatch):
    leads, decided = encode_leader("main", epoch=7, time_ms=0), json.dumps(ACTION).encode()
    tail = ("actions", "tail", "--from", "earliest", "--no-follow")
    shown = run(monkeypatch, [leads, decided, b"junk"], *tail)
    assert shown.stdout.splitlines()[0].endswith("controller main has a new leader, epoch 7")
    assert ACTION["id"] in shown.stdout
    assert shown.stderr.startswith("trimtab.actions, offset 2: not an action: ")
    piped = run(monkeypatch, [leads, decided], *tail, "-o", "json")
    assert [json.loads(line) for line in piped.stdout.splitlines()] == [ACTION]
