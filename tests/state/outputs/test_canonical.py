"""What is published: canonical data, ids, moments, and rows of a summary's tables."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from state.outputs import (
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    InFlightRow,
    JudgedRow,
    Output,
    Section,
    Split,
    Throttle,
    Unload,
    canonical,
    content_id,
    output,
    rfc3339,
)
from tests.state.building import split, unload

LISTS = tuple(
    f"{verb}_{role}_throttled_replicas" for verb in ("add", "remove") for role in ("leader", "follower")
)


def throttle() -> Throttle:
    """Nothing to do."""
    return Throttle(
        cluster="east-1",
        round=7,
        policy="reassignment-throttle",
        trigger="first-throttle",
        reason="why",
        evidence={},
        expected={},
        precondition={"reassignments": "running"},
        expires_at="1970-01-01T00:11:00.000Z",
        dry_run=False,
        **{name: {} for name in LISTS},
        leader_rate_bytes_per_s={},
        follower_rate_bytes_per_s={},
        clear_leader_rates=[],
        clear_follower_rates=[],
        disk_rate_bytes_per_s={},
        clear_disk_rates=[],
        leader_min_bytes_per_s={},
        follower_min_bytes_per_s={},
        disk_min_bytes_per_s={},
        copies={},
        eta_s=None,
        bottleneck="leader:101",
        fingerprint="",
    )


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are not in the order of the alphabet."""

    b: float
    a: dict[str, int | None]
    c: bool | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (Sample(b=1.5, a={"y": 1, "x": None}), '{"a":{"x":null,"y":1},"b":1.5}'),
        (Sample(b=0.1, a={}, c=False), '{"a":{},"b":0.1,"c":false}'),
        ({"ü": [3, 1, 2], "a": "x y"}, '{"a":"x y","ü":[3,1,2]}'),
        ({"10": 1, "9": 2, "Z": 3, "a": 4}, '{"10":1,"9":2,"Z":3,"a":4}'),
        ([], "[]"),
    ],
    ids=["keys are sorted", "unset is left out, false is not", "UTF-8, lists keep their order", "by code", "empty"],
)  # fmt: skip
def test_data_has_sorted_keys_and_no_white_space_between_them(data: object, text: str) -> None:
    assert canonical(data) == text.encode()


def test_the_order_in_which_a_table_was_filled_changes_nothing() -> None:
    assert canonical({"a": 1, "b": {"c": 2, "d": 3}}) == canonical({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb924"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223"),
    ],
)
def test_an_id_is_the_first_half_of_the_sha_256(data: bytes, id_: str) -> None:
    """The hashes are the test vectors of FIPS 180-4: of the empty text, and of abc."""
    assert content_id(data) == id_


def of(action: Unload | Split | Throttle, **envelope: Any) -> Output:
    """The output of an action."""
    defaults = {"type_": "x", "subject": "s", "cluster": "east-1", "number": 7, "place": 2}
    return output(**defaults | {"time_ms": 480_000, "dry_run": True} | envelope, data=action)


def test_an_output_has_its_data_encoded() -> None:
    assert of(unload()) == Output(
        kind="action",
        type="x",
        subject="s",
        cluster="east-1",
        round=7,
        place=2,
        time_ms=480_000,
        id=of(unload()).id,
        data=canonical(unload()),
        dry_run=True,
    )


@pytest.mark.parametrize(
    ("action", "changes"),
    [
        (unload(), {"reason": "better said", "trigger": "t", "policy": "p", "expires_at": "later"}),
        (unload(), {"evidence": {"more": 1}, "expected": {}, "proposal_id": "a"}),
        (split(), {"reason": "better said", "evidence": {"more": 1}, "children": [], "algorithm": "other"}),
        (throttle(), {"reason": "better said", "evidence": {"more": 1}, "eta_s": 1.0, "bottleneck": None}),
    ],
)
def test_a_better_sentence_or_one_more_number_of_evidence_changes_no_id(
    action: Unload | Split | Throttle, changes: dict[str, Any]
) -> None:
    changed = of(replace(action, **changes))
    assert changed.id == of(action).id
    assert changed.data != of(action).data


@pytest.mark.parametrize(
    ("action", "changes"),
    [
        (unload(), {"source_broker": "b9"}),
        (unload(), {"destination_broker": None}),
        (unload(), {"dry_run": True}),
        (unload(), {"proposal": True}),
        (split(), {"broker": "b9"}),
        (split(), {"boundaries": [7]}),
        (split(), {"dry_run": True}),
        (split(), {"proposal": True}),
        (throttle(), {"dry_run": True}),
        (throttle(), {"precondition": {"reassignments": "none"}}),
        *((throttle(), {name: {"orders": "0:101"}}) for name in LISTS),
        *(
            (throttle(), {name: {"101": 7}})
            for name in ("leader_rate_bytes_per_s", "follower_rate_bytes_per_s")
        ),
        *((throttle(), {name: [109]}) for name in ("clear_leader_rates", "clear_follower_rates")),
    ],
)
def test_what_is_to_be_done_changes_the_id(
    action: Unload | Split | Throttle, changes: dict[str, Any]
) -> None:
    assert of(replace(action, **changes)).id != of(action).id


@pytest.mark.parametrize("envelope", [{"cluster": "west-1"}, {"number": 8}, {"subject": "t"}, {"type_": "y"}])
def test_another_cluster_round_target_or_kind_has_another_id(envelope: dict[str, Any]) -> None:
    assert of(unload(), **envelope).id != of(unload()).id


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_000, "1970-01-01T00:00:01.000Z"),
        (86_400_000, "1970-01-02T00:00:00.000Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_214_400_000, "9999-12-31T00:00:00.000Z"),
    ],
)
def test_a_moment_is_written_in_utc_with_milliseconds(time_ms: int, text: str) -> None:
    """11,016 days lie between the epoch and 29 February 2000: 30 years, 7 leap days and 59 days of 2000."""
    assert rfc3339(time_ms) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(-62_135_596_800_001, "0001-01-01T00:00:00.000Z"), (253_402_214_400_001, "9999-12-31T00:00:00.000Z")],
)
def test_a_moment_outside_the_calendar_becomes_its_first_or_last(time_ms: int, text: str) -> None:
    assert rfc3339(time_ms) == text


EXAMINED = ExaminedRow(
    high_broker="b1", low_broker=None, group=None, outcome="fired", detail="", trigger="", evidence={}
)
TRAFFIC: dict[Any, BrokerTraffic] = {"source": BrokerTraffic(messages_per_s=1.0, bytes_per_s=2.0)}
JUDGED = JudgedRow(
    id="a",
    kind="unload",
    bundle="t/a/0x0_0x1",
    outcome="effective",
    brokers={"source": "b1"},
    before=TRAFFIC,
    expected=TRAFFIC,
    seen={},
)
LOAD = BrokerLoad(
    broker="b1",
    usage_points=12.5,
    resources={"cpu": 12.5, "memory": "not-measured"},
    messages_per_s=1.0,
    bytes_per_s=2.0,
    bundles_count=3,
    excluded=False,
    group=None,
)
IN_FLIGHT = InFlightRow(id="a", kind="throttle", target="reassignments", expires_at="then")


def test_a_row_has_all_its_fields_also_those_that_are_null_or_empty() -> None:
    assert canonical(EXAMINED) == (
        b'{"detail":"","evidence":{},"group":null,"high_broker":"b1","low_broker":null,"outcome":"fired","trigger":""}'
    )


@pytest.mark.parametrize("row", [EXAMINED, JUDGED, LOAD, IN_FLIGHT], ids=lambda row: type(row).__name__)
def test_a_row_that_is_read_again_is_the_same(row: msgspec.Struct) -> None:
    assert msgspec.json.decode(canonical(row), type=type(row)) == row


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        (JUDGED, "outcome", "acted"),
        (JUDGED, "kind", "throttle"),
        (JUDGED, "brokers", {"owner": "b1"}),
        (LOAD, "resources", {"cpu": "unknown"}),
        (IN_FLIGHT, "kind", "move"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_value_that_no_row_can_have_is_refused_when_it_is_read(
    row: msgspec.Struct, field: str, value: object
) -> None:
    strange = msgspec.to_builtins(row) | {field: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(strange, type(row))


def test_a_section_counts_more_rows_than_it_shows_and_knows_their_type() -> None:
    section = Section(count=2, outcomes={"fired": 2}, heaviest=[EXAMINED])
    text = canonical(section)
    assert msgspec.json.decode(text, type=Section[ExaminedRow]) == section
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Section[CandidateRow])
