"""Decoding never raises, whatever comes; Hypothesis and a sweep of nesting depths look for a counterexample."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.events import Control, Event, LoadReport, Rejection
from streaming.contract.decode import decode
from streaming.contract.encode import Origin, encode_refused, encode_refused_event
from tests.streaming.events import CLUSTER, TOPIC_STATS, control, event, report, result, tick, traffic

CHECKED = settings(max_examples=75, deadline=None, derandomize=True)
QUICK = settings(max_examples=30, deadline=None, derandomize=True)

BUNDLE = "t/n/0x00000000_0x80000000"
VALID = [
    report(cpu=(50, 100), rate=5, bundles={BUNDLE: traffic(3, 4)}),
    report(data={"bundles": None, "lastStats": {BUNDLE: {}}, "memory": {"usage": 1}}),
    tick(time_s=5, asked=["b1"], failed={"b2": "timeout"}),
    result("abc", "failed", time_s=1),
    control(time_s=1, data={"paused": True, "settings": {"pulsar": {"guards": {}}}, "who": "ann"}),
    event(TOPIC_STATS, data={BUNDLE: {"persistent://t/n/a": traffic(1)}}),
]
ODD = [
    *(None, True, "", "NaN", "Infinity", "\ud800", 0, -1, -2, 1e19, -1e300, 10**25, 10**400, [], {}, [[]]),
    *({"usage": -1, "limit": 5}, {"0x0_0x1": 1}, float("nan"), float("inf"), "x" * 1000, "2026-11-21T13:21Z"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1.0", {"": None}),
]


def check(value: bytes, key: str | None = None) -> None:
    """Decoding ends in an event without anything unusable in it, or in a refusal that can be published."""
    cluster, found, _ = decode(value, key=key)
    if isinstance(found, Rejection):
        origin = Origin(topic="in", partition=0, offset=1)
        dead = encode_refused_event(value, origin=origin, rejection=found, cluster=cluster, appended_ms=None)
        assert json.loads(encode_refused(dead, "/trimtab/t"))["data"]["reason"] == found.reason
        assert len(found.detail) < 2_000
        return
    assert isinstance(found, Event)
    assert cluster
    if isinstance(found, LoadReport):
        columns = found.report
        assert np.isfinite(columns.resources).all()
        assert np.isfinite(columns.traffic).all()
        assert (columns.traffic >= 0).all()
        assert columns.messages_per_s >= 0
        assert math.isfinite(columns.messages_per_s + columns.bytes_per_s)
        assert columns.bundles == sorted(set(columns.bundles))
    if isinstance(found, Control):
        assert isinstance(msgspec.json.decode(found.data.settings_json), dict)


@CHECKED
@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_a_refusal(value: bytes):
    check(value)


@CHECKED
@given(st.sampled_from(VALID), st.data())
def test_a_valid_event_with_damaged_bytes_is_an_event_or_a_refusal(value: bytes, data: st.DataObject):
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from([b"NaN", b"1e999", b"null", b'"', b"{", b"\\ud800", b"-1"]),
            )
        )
    check(bytes(damaged), data.draw(st.sampled_from([None, CLUSTER, ""])))


ANYTHING = st.recursive(
    st.sampled_from(ODD) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def replace_one(tree: object, put: object, data: st.DataObject) -> object:
    """The tree with one value, at any depth, removed or replaced by ``put``."""
    if not isinstance(tree, dict) or not tree or data.draw(st.integers(0, 3)) == 0:
        return put
    name = data.draw(st.sampled_from(sorted(tree)))
    if data.draw(st.integers(0, 9)) == 0:
        return {key: value for key, value in tree.items() if key != name}
    return tree | {name: replace_one(tree[name], put, data)}


@CHECKED
@given(st.sampled_from(VALID), ANYTHING, st.data())
def test_a_valid_event_with_another_value_is_event_or_refusal(value: bytes, put: object, data: st.DataObject):
    event_: dict[str, object] = json.loads(value)
    name = data.draw(st.sampled_from([*sorted(event_), "data", "data", "recordedtime"]))
    event_[name] = replace_one(event_.get(name), put, data)
    check(json.dumps(event_).encode())


@QUICK
@given(
    st.dictionaries(
        st.sampled_from(["msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"]),
        st.floats(allow_nan=False) | st.none(),
    ),
    st.dictionaries(st.sampled_from(["usage", "limit"]), st.floats(allow_nan=False) | st.none()),
)
def test_any_numbers_are_usable_or_refused(rates: dict[str, float], cpu: dict[str, float]):
    check(report(data=rates | {"cpu": cpu}))
    check(report(data={"lastStats": {BUNDLE: rates, "t/n/0x1_0x2": rates}}))
    check(report(data={"bundles": [], "lastStats": {BUNDLE: rates}}))


@pytest.mark.parametrize("inner", [b"1", b"NaN", b'"\\ud800"'])
@pytest.mark.parametrize("opening", [(b'{"a":', b"}"), (b"[", b"]")], ids=["objects", "arrays"])
def test_nesting_of_any_depth_is_an_event_or_a_refusal(opening: tuple[bytes, bytes], inner: bytes):
    for template in (report(data={"news": "HERE"}), control(time_s=0, data={"settings": {"a": "HERE"}})):
        for depth in (*range(150, 200, 5), *range(900, 1010, 2), 5_000, 200_000):
            nested = opening[0] * depth + inner + opening[1] * depth
            check(template.replace(b'"HERE"', nested))
