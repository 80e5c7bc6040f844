"""A round and a rejected record are shown to a person."""

import base64
from typing import Any

import msgspec
import pytest

from state.outputs import JudgedRow, canonical
from streaming.cli.published import Rejected, UnreadableEvent, is_round_of, read_rejected
from streaming.cli.rejected import place_of, rejected_text, tail_rejected_text
from streaming.cli.summaries import round_text, tail_round_text
from streaming.contract.encode import REJECTED_TYPE, RejectedData
from tests.streaming.summaries import ROUND, section
from tests.streaming.test_status import HOT, PAIR, of, rows


def test_a_round_is_told_with_what_it_looked_at_judged_and_found() -> None:
    judged = JudgedRow(
        id="a0", kind="unload", bundle="t/n/b", outcome="good", brokers={}, before={}, expected={}, seen={}
    )
    pair = msgspec.structs.replace(PAIR, evidence={"difference_points": 31.25, "needed_hit_count": 8})
    text = round_text(of(ROUND, examined=rows(pair), judged=rows(judged), findings=rows(HOT), actions=["a1"]))
    assert text.startswith(
        "round 7 of east-1 (pulsar), 1970-01-01T00:07:00.000Z to 1970-01-01T00:08:00.000Z\n"
    )
    for expected in (
        "  b1 with b2  hit-count 3/8  difference_points 31.25, needed_hit_count 8\n",
        "Bundles of the brokers that fired: 2 acted, 5 cooldown\n  and 7 more, counted above\n",
        "Earlier actions that were judged: 1 shown\n  unload t/n/b  good  a0\n",
        "  hot-partition  t/n/orders  add partitions\n",
        "Actions of the round: a1\n",
    ):
        assert expected in text
    assert "Findings" not in round_text(of(ROUND, findings=section()))


def test_a_round_in_a_line() -> None:
    data = msgspec.structs.replace(ROUND, paused=True, actions_count=1, reason="why")
    assert tail_round_text(data) == (
        "1970-01-01T00:08:00.000Z east-1 round 7 [act, paused] decided, 1 action: why\n"
    )


def test_a_round_is_found_by_its_cluster_and_number() -> None:
    value = canonical(of(ROUND))
    assert is_round_of(value, cluster="east-1", number=7)
    assert not is_round_of(value, cluster="east-1", number=8)
    assert not is_round_of(value, cluster="west", number=7)
    assert not is_round_of(b"garbage", cluster="east-1", number=7)


def rejected(head: bytes, **fields: Any) -> Rejected:
    data = RejectedData(
        reason="not-json",
        detail="it is no JSON",
        topic="in",
        partition=2,
        offset=17,
        size_bytes=len(head),
        sha256="ab",
        head_base64=base64.b64encode(head).decode(),
    )
    event = Rejected(id="r1", source="/trimtab/main", type=REJECTED_TYPE, cluster="east-1", data=data)
    return msgspec.structs.replace(event, **fields)


def test_a_rejected_record_is_told_with_its_place_reason_and_beginning() -> None:
    event = rejected(b"\xffno json")
    assert place_of(event) == "in/2@17"
    assert tail_rejected_text(event) == "at an unknown time east-1 in/2@17 not-json: it is no JSON\n"
    assert rejected_text(event).startswith("in/2@17\nit is no JSON\n\n  reason   not-json\n")
    assert rejected_text(event).endswith("It begins with\n\n\\xffno json\n")
    long = rejected_text(rejected(b"x" * 3000, time="t", cluster=""))
    assert long.endswith("x" * 2000 + "\n… 3000 bytes in all\n")
    assert "  cluster  not known\n" in long


def test_what_is_of_another_type_is_not_read_as_this() -> None:
    with pytest.raises(UnreadableEvent, match=r"trimtab\.round\.v1 is not a trimtab\.rejected\.v1"):
        read_rejected(canonical(of(ROUND)))
    with pytest.raises(UnreadableEvent, match="not a trimtab"):
        read_rejected(b"garbage")
    assert read_rejected(canonical(rejected(b"x"))).data.offset == 17
