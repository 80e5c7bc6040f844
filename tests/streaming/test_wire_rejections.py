"""Every record that is refused, by name, with the sentence that says what is wrong."""

import json
from collections.abc import Callable

import pytest

from state.events import Rejection, RejectReason
from streaming.contract.decode import decode
from tests.streaming.events import (
    ABSENT,
    ACTION_RESULT,
    CLUSTER,
    CLUSTER_FACTS,
    CONTROL,
    LOAD_REPORT,
    TICK,
    TOPIC_STATS,
    control,
    event,
    facts,
    report,
    tick,
    traffic,
)

BUNDLE = "t/n/0x00000000_0x80000000"


def rejection(value: bytes | None, *, key: str | None = CLUSTER) -> tuple[str, Rejection]:
    cluster, found, _ = decode(value, key=key)
    assert isinstance(found, Rejection), found
    return cluster, found


def literal(value: bytes, placeholder: str, text: str) -> bytes:
    """JSON with something in it that json.dumps would not write."""
    return value.replace(json.dumps(placeholder).encode(), text.encode())


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


NOT_JSON: dict[str, bytes | None] = {
    "a tombstone": None,
    "an empty record": b"",
    "white space": b"  ",
    "text": b"hello",
    "half an event": report()[:-1],
    "two events on a line": report() + report(),
    "bytes that are not UTF-8": report().replace(b"tests", b"te\xffts"),
    "UTF-16": report().decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + report(),
    "a lone surrogate in the id": report(id="\ud800"),
    "a lone surrogate in the subject": report(broker="\udfff!", id="1"),
    "a lone surrogate in a bundle name": report(bundles={"t/\ud800/0x0_0x1": traffic(1)}),
    "a surrogate pair upside down": report(id="\udc00\ud800"),
    "a control character in a string": report().replace(b"tests", b"te\x01ts"),
    "NaN outside the data": literal(report(extension="?"), "?", "NaN"),
    "nesting without end": report(data={}).replace(b'"data": {}', b'"data": ' + nested(100_000)),
    "nesting without end in an attribute": report(extension=0).replace(
        b'"extension": 0', b'"extension": ' + nested(100_000)
    ),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_refused_without_a_cluster(name: str):
    cluster, found = rejection(NOT_JSON[name])
    assert (cluster, found.reason) == ("", "not-json"), found


def test_bytes_that_are_no_text_are_said_to_be_none():
    _, found = rejection(b'{"a":"\xff"}')
    assert found.detail == "not JSON: byte 7 is not text in UTF-8"


ENVELOPES: list[tuple[str, bytes, RejectReason, str]] = [
    ("an array", b"[]", "not-cloudevent", "expected a JSON object, found an array"),
    ("a number", b"1", "not-cloudevent", "expected a JSON object, found a number"),
    ("null", b"null", "not-cloudevent", "expected a JSON object, found null"),
    ("an empty object", b"{}", "not-cloudevent", "specversion is missing, expected '1.0'"),
    ("no specversion", report(specversion=ABSENT), "not-cloudevent", "specversion is missing"),
    ("another specversion", report(specversion="0.3"), "not-cloudevent", "specversion is '0.3'"),
    ("a number for specversion", report(specversion=1.0), "not-cloudevent", "specversion is 1.0"),
    ("no id", report(id=ABSENT), "not-cloudevent", "id is missing, expected a non-empty string"),
    ("an empty id", report(id=""), "not-cloudevent", "id is ''"),
    ("a number for id", report(id=7), "not-cloudevent", "id is 7"),
    ("no source", report(source=ABSENT), "not-cloudevent", "source is missing"),
    ("no type", report(type=ABSENT), "not-cloudevent", "type is missing"),
    ("a list for type", report(type=["x"]), "not-cloudevent", "type is ['x']"),
    ("binary data", report(datacontenttype="text/plain"), "not-cloudevent", "datacontenttype is 'text/plain'"),
    ("a number for datacontenttype", report(datacontenttype=5), "not-cloudevent", "datacontenttype is 5"),
    ("an unknown type", report(type="trimtab.pulsar.weather.v1"), "unknown-type", "weather.v1', expected one of"),
    ("a future version", report(type="trimtab.pulsar.load-report.v2"), "unknown-type", "load-report.v2'"),
    ("an output of our own", report(type="trimtab.round.v1"), "unknown-type", "trimtab.round.v1'"),
    ("no cluster", report(cluster=ABSENT), "missing-cluster", "the attribute cluster is missing"),
    ("a null cluster", report(cluster=None), "missing-cluster", "the attribute cluster is null"),
    ("an empty cluster", report(cluster=""), "missing-cluster", "the attribute cluster is ''"),
    ("a number for cluster", report(cluster=7), "invalid-cluster", "cluster is 7, expected 1 to 100"),
    ("a space in the cluster", report(cluster="a b"), "invalid-cluster", "cluster is 'a b'"),
    ("a slash in the cluster", report(cluster="a/b"), "invalid-cluster", "cluster is 'a/b'"),
    ("a newline after the cluster", report(cluster=CLUSTER + "\n"), "invalid-cluster", "east-1\\n'"),
    ("letters beyond ASCII in the cluster", report(cluster="où"), "invalid-cluster", "cluster is 'où'"),
    ("a name that is cut says so", report(cluster="a" * 5000), "invalid-cluster", "aaa…', expected 1 to 100"),
    ("a cluster of 101 characters", report(cluster="a" * 101), "invalid-cluster", "expected 1 to 100"),
    ("another cluster than the key's", report(cluster="west-1"), "cluster-mismatch", "key is 'east-1', its cluster 'west-1'"),
    ("another cluster, and more wrong", report(cluster="west-1", subject=""), "cluster-mismatch", "'west-1'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason", "says"), [case[1:] for case in ENVELOPES], ids=[case[0] for case in ENVELOPES]
)
def test_an_envelope_that_is_wrong_is_refused_by_name(value: bytes, reason: RejectReason, says: str):
    cluster, found = rejection(value)
    assert found.reason == reason
    assert says in found.detail
    assert cluster in {"", CLUSTER}


@pytest.mark.parametrize("reason", ["missing-cluster", "invalid-cluster", "cluster-mismatch"])
def test_a_record_of_no_certain_cluster_is_refused_under_the_empty_name(reason: RejectReason):
    values = [value for _, value, why, _ in ENVELOPES if why == reason]
    assert values
    assert {rejection(value)[0] for value in values} == {""}


def test_a_refused_record_of_a_certain_cluster_keeps_its_name():
    assert rejection(report(subject=""))[0] == CLUSTER
    assert rejection(report(subject=""), key=None)[0] == CLUSTER
    assert rejection(report(subject=""), key="")[0] == ""


ATTRIBUTES: list[tuple[str, bytes, RejectReason, str]] = [
    ("no subject", report(subject=ABSENT), "no-subject", "subject is missing, expected a non-empty string"),
    ("an empty subject", report(subject=""), "no-subject", "subject is ''"),
    ("a number for subject", tick(time_s=0, subject=3), "no-subject", "subject is 3"),
    ("no time", report(time=ABSENT), "bad-time", "time is missing, expected RFC 3339"),
    ("a null time", report(time=None), "bad-time", "time is null"),
    ("a number for time", report(time=1795267284054), "bad-time", "time is 1795267284054"),
    ("words for time", report(time="noon"), "bad-time", "time is 'noon'"),
    ("an empty time", report(time=""), "bad-time", "time is ''"),
    ("a time without an offset", report(time="2026-11-21T13:21:25"), "bad-time", "with an offset"),
    ("a date", report(time="2026-11-21"), "bad-time", "2026-11-21'"),
    ("a basic ISO time", report(time="20261121T132125Z"), "bad-time", "20261121T132125Z"),
    ("a week date", report(time="2026-W47-6T00:00:00Z"), "bad-time", "2026-W47-6"),
    ("no seconds", report(time="2026-11-21T13:21Z"), "bad-time", "13:21Z"),
    ("a thirteenth month", report(time="2026-13-21T13:21:25Z"), "bad-time", "2026-13"),
    ("a leap second", report(time="2026-12-31T23:59:60Z"), "bad-time", "23:59:60"),
    ("before 1970", report(time="1969-12-31T23:59:59Z"), "bad-time", "not between 1970 and 9000"),
    ("before 1970 by its offset", report(time="1970-01-01T01:00:00+05:00"), "bad-time", "not between 1970"),
    ("after 8999", report(time="9000-01-01T00:00:00Z"), "bad-time", "not between 1970 and 9000"),
    ("a recorded time that is none", report(recordedtime="soon"), "bad-time", "recordedtime is 'soon'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason", "says"), [case[1:] for case in ATTRIBUTES], ids=[case[0] for case in ATTRIBUTES]
)
def test_an_attribute_that_is_wrong_is_refused_by_name(value: bytes, reason: RejectReason, says: str):
    cluster, found = rejection(value)
    assert (cluster, found.reason) == (CLUSTER, reason), found
    assert says in found.detail


def stats(**fields: object) -> bytes:
    return report(bundles={BUNDLE: fields})


DATA: list[tuple[str, bytes, RejectReason, str]] = [
    ("NaN as a literal", report(cpu=(float("nan"), 100)), "not-finite", "data.cpu.usage is nan"),
    ("Infinity as a literal", report(rate=float("inf")), "not-finite", "data.msgRateIn is inf"),
    ("-Infinity as a literal", stats(msgRateOut=float("-inf")), "not-finite", "msgRateOut is -inf"),
    ("1e999", literal(report(data={"msgRateIn": "?"}), "?", "1e999"), "not-finite", "data.msgRateIn is inf"),
    ("-1e999", literal(report(data={"msgRateIn": "?"}), "?", "-1e999"), "not-finite", "is -inf"),
    ("a number of 400 digits", report(data={"msgRateIn": 10**400}), "not-finite", "data.msgRateIn is inf"),
    ("a number of 5,000 digits", literal(report(data={"msgRateIn": "?"}), "?", "9" * 5000), "not-finite", "is inf"),
    ("NaN as text", report(data={"cpu": {"usage": "NaN", "limit": 100}}), "not-finite", "data.cpu.usage is 'NaN'"),
    ("Infinity as text", stats(msgThroughputIn="Infinity"), "not-finite", "msgThroughputIn is 'Infinity'"),
    ("-Infinity as text", report(data={"msgThroughputOut": "-Infinity"}), "not-finite", "is '-Infinity'"),
    ("NaN in an unknown field", report(data={"news": float("nan")}), "not-finite", "data.news is nan"),
    ("NaN in a list", report(data={"news": [1, float("nan")]}), "not-finite", "data.news[1] is nan"),
    ("NaN below a strange key", report(data={"\ud800": float("nan")}), "not-finite", "data.\\ud800 is nan"),
    ("NaN in topic statistics", event(TOPIC_STATS, data={BUNDLE: {"a": {"msgRateIn": float("nan")}}}), "not-finite", "is nan"),
    ("negative usage", report(cpu=(-1, 100)), "negative-usage", "cpu.usage is -1.0 with limit 100.0"),
    ("negative usage without a limit", report(cpu=(-0.5, -1)), "negative-usage", "cpu.usage is -0.5"),
    ("negative usage with an absent limit", report(data={"cpu": {"usage": -5}}), "negative-usage", "cpu.usage is -5.0"),
    ("-2 with -2", report(data={"directMemory": {"usage": -2, "limit": -2}}), "negative-usage", "directMemory.usage is -2.0"),
    ("negative heap", report(data={"memory": {"usage": -3, "limit": 9}}), "negative-usage", "memory.usage is -3.0"),
    ("a negative rate of the broker", report(rate=-1), "negative-rate", "msgRateIn is -1.0, expected 0 or more"),
    ("a negative throughput of the broker", report(volume=-0.1), "negative-rate", "msgThroughputIn is -0.1"),
    ("a negative rate of a bundle", stats(msgRateIn=-5), "negative-rate", f"a rate of {BUNDLE} is -5.0"),
    ("a negative rate of a bundle that is not listed", report(rate=1, data={"bundles": [], "lastStats": {BUNDLE: {"msgRateIn": -5}}}), "negative-rate", "is -5.0"),
    ("a negative rate of a heartbeat", report(rate=1, bundles={"pulsar/lab/b1:8080/0x00000000_0xffffffff": traffic(-1)}), "negative-rate", "is -1.0"),
    ("a negative rate of a topic", event(TOPIC_STATS, data={BUNDLE: {"persistent://t/n/a": {"msgRateOut": -1}}}), "negative-rate", "persistent://t/n/a is -1.0"),
    ("a rate beyond reason", stats(msgRateIn=1e19), "bad-data", "expected at most 1e+18"),
    ("rates beyond reason, not listed", report(data={"bundles": [], "lastStats": {f"t/n/0x0_0x{i}": {"msgRateIn": 1.7e308} for i in range(9)}}), "bad-data", "1.7e+308"),
    ("a negative count of a topic's clients", event(TOPIC_STATS, data={BUNDLE: {"persistent://t/n/a": {"consumers": -1}}}), "bad-data", "consumers of persistent://t/n/a is -1"),
    ("a count beyond 32 bits", event(TOPIC_STATS, data={BUNDLE: {"a": {"producers": 2**31}}}), "bad-data", "expected 0 to"),
    ("a negative count", stats(topics=-1), "bad-data", "topics of t/n/"),
    ("a count beyond reason", stats(consumerCount=3e9), "bad-data", "is 3,000,000,000, expected 0 to 2,147,483,647"),
    ("a usage beyond reason", report(cpu=(1e19, 100)), "bad-data", "no percentage can be computed"),
    ("a limit too small to divide by", report(cpu=(1, 1e-30)), "bad-data", "no percentage can be computed"),
    ("nothing of a broker", report(data={}), "bad-data", "no usage, no rate and no bundle of the broker: expected Pulsar's LocalBrokerData with cpu,"),
    ("only fields of something else", report(data={"Cpu": {"usage": 1}, "bundle": ["t/n/0x0_0x1"]}), "bad-data", "no usage, no rate and no bundle"),
    ("empty fields", report(data={"cpu": {}, "memory": None, "lastStats": {}, "bundles": []}), "bad-data", "no usage, no rate and no bundle"),
    ("no data", event(LOAD_REPORT, data=ABSENT), "bad-data", "missing required field `data`"),
    ("null data", event(LOAD_REPORT, data=None), "bad-data", "got `null`"),
    ("an array for data", event(LOAD_REPORT, data=[]), "bad-data", "got `array`"),
    ("text for a rate", report(data={"msgRateIn": "12"}), "bad-data", "msgRateIn"),
    ("a truth value for a rate", stats(msgRateIn=True), "bad-data", "got `bool`"),
    ("a number for a bundle", report(data={"bundles": [5]}), "bad-data", "bundles"),
    ("no outcome of an action", event(ACTION_RESULT, data={}), "bad-data", "outcome"),
    ("an unknown outcome of an action", event(ACTION_RESULT, data={"outcome": "maybe"}), "bad-data", "maybe"),
    ("text for paused", control(time_s=0, data={"paused": "yes"}), "bad-data", "paused"),
    ("an unknown mode", control(time_s=0, data={"mode": "turbo"}), "bad-data", "turbo"),
    ("a list for settings", control(time_s=0, data={"settings": []}), "bad-data", "settings"),
    ("a resume of the future", control(time_s=5, data={"resumed_at": "1970-01-01T00:00:05.001Z"}), "bad-data",
        "resumed_at is 1970-01-01T00:00:05.001Z, after the event's own time 1970-01-01T00:00:05.000Z"),
    ("a resume at a time without offset", control(time_s=5, data={"resumed_at": "1970-01-01T00:00:05"}), "bad-data", "resumed_at"),
    ("namespaces of a policy in a language of their own", facts(time_s=0, isolation={"red": [["t/("], ["b1"]]}), "bad-data",
        "isolation policy 'red' has the regular expression 't/(', which RE2 does not understand"),
    ("brokers of a policy in Java's own", facts(time_s=0, isolation={"red": [["t/.*"], [r"b(?!x).*"]]}), "bad-data",
        "isolation policy 'red' has the regular expression '"),
    ("a number for a broker's shedding", event(CLUSTER_FACTS, data={"pulsar_cluster": "e", "brokers": {"b1": {"shedding_enabled": 1}},
        "isolation_policies": {}, "anti_affinity_groups": {}}), "bad-data", "shedding_enabled"),
    ("facts without policies", event(CLUSTER_FACTS, data={"pulsar_cluster": "e", "brokers": {}}), "bad-data", "isolation_policies"),
    ("a number for a broker asked", event(TICK, data={"asked": [1]}), "bad-data", "asked"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason", "says"), [case[1:] for case in DATA], ids=[case[0] for case in DATA]
)
def test_data_that_cannot_be_used_is_refused_by_name(value: bytes, reason: RejectReason, says: str):
    cluster, found = rejection(value)
    assert (cluster, found.reason) == (CLUSTER, reason), found
    assert says in found.detail
    found.detail.encode()


NO_BUNDLES = [
    "",
    "t/n",
    "t/n/",
    "t/n/0x0",
    "t/n/0x0_0x1 ",
    "t/n/0x0_0x1\n",
    "t n/x/0x0_0x1",
    "t/n/0x0_0x1_0x2",
    "t/n/0x000000000_0x1",
    "t/n/0xg_0x1",
    "t/n/0_1",
    "n/0x0_0x1",
    "a/t/c/n/0x0_0x1",
    "/n/0x0_0x1",
    "t//0x0_0x1",
]


def listed(name: str) -> bytes:
    return report(data={"bundles": [name]})


def measured(name: str) -> bytes:
    return report(data={"lastStats": {name: traffic(1)}})


def counted(name: str) -> bytes:
    return event(TOPIC_STATS, data={name: {}})


@pytest.mark.parametrize("name", NO_BUNDLES)
@pytest.mark.parametrize("build", [listed, measured, counted])
def test_a_name_that_is_no_bundle_is_refused_wherever_it_stands(build: Callable[[str], bytes], name: str):
    cluster, found = rejection(build(name))
    assert (cluster, found.reason) == (CLUSTER, "bad-bundle-name")
    assert repr(name) in found.detail


def test_every_reason_that_decoding_can_give_is_in_these_tables():
    seen = {reason for table in (ENVELOPES, ATTRIBUTES, DATA) for _, _, reason, _ in table}
    assert seen == {
        "not-cloudevent",
        "unknown-type",
        "missing-cluster",
        "invalid-cluster",
        "cluster-mismatch",
        "no-subject",
        "bad-time",
        "bad-data",
        "not-finite",
        "negative-usage",
        "negative-rate",
    }


def test_what_a_refusal_says_stays_short_whatever_the_record_holds():
    long = "x" * 1_000_000
    values = [
        report(cluster=long),
        report(type=long),
        report(time=long),
        report(datacontenttype=long),
        report(data={long: float("nan")}),
        report(bundles={f"{long}/0x0_0x1": traffic(1)}),
        report(bundles={f"t/{long}/0x0_0x1": traffic(-1)}),
        control(time_s=0, data={"mode": long}),
        event(CONTROL, data={"settings": long}),
    ]
    assert max(len(rejection(value)[1].detail) for value in values) < 2_000
