"""Records of some clusters as they come on a log, real ones and damaged ones between each other, from one seed.

Real are those of a recorded Pulsar cluster, the golden message of every type, and a Kafka cluster that moves partitions.
Their clusters, times, brokers and actions are brought up to date, so that they take part in rounds; then some are damaged.
Damage is in bytes, types, extremes, times, names and deep nesting.
"""

import copy
import dataclasses
import gzip
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from deploy.docs.schemas import KINDS
from state.outputs import Output, rfc3339
from state.settings import ClusterSettings
from streaming.contract.encode import Origin
from streaming.transport.intake import Record
from tests.streaming import golden

RECORDING = Path(__file__).parents[1] / "recordings/pulsar-3-brokers.ndjson.gz"
START_MS = 1_790_000_000_000
PULSAR, KAFKA, EITHER = ("east", "west"), ("k-east", "k-west"), ("both",)
NOWHERE = ("", "x" * 101, "a b", "ü", "no\n")
"""Names that no cluster can have."""
CONTROL = "trimtab.control.v1"
RESULT = "trimtab.action-result.v1"
_DAMAGED = 0.35
_AHEAD = 0.01
"""Share of the records whose sender's clock is a minute ahead of the log."""
_BROKERS = 4

Event = dict[str, Any]


def recorded(limit: int) -> list[Event]:
    """Events of the recording, evenly spread over it."""
    with gzip.open(RECORDING) as stream:
        lines = stream.readlines()
    return [json.loads(line) for line in lines[:: max(len(lines) // limit, 1)]]


def golden_events() -> list[Event]:
    """One of every type that is read."""
    read = {kind.type for kind in KINDS if kind.is_read}
    return [
        event
        for folder in golden.folders()
        for type_, event in golden.messages(folder).items()
        if type_ in read
    ]


def kafka_events() -> list[Event]:
    """A few partitions on their way, as brokers and controller tell it."""
    moves = [
        {"topic": f"t{at % 2}", "partition": at, "replicas": [1, 2, 3], "leader": 1 + at % 2}
        | {"adding": [3], "removing": [1], "isr": [1, 2]}
        for at in range(4)
    ]
    replicas = [
        {"topic": f"t{at % 2}", "partition": at, "leader": True, "log_size_bytes": 10**9, "log_end_offset": 5}
        for at in range(4)
    ]
    reports = [
        {"type": "trimtab.kafka.load-report.v1", "subject": str(broker)}
        | {"data": {"broker": broker, "throttle": {}, "network": {}, "replicas": replicas}}
        for broker in (1, 2, 3)
    ]
    moving: Event = {"type": "trimtab.kafka.reassignment.v1", "subject": "reassignments"}
    return [*reports * 3, *[moving | {"data": {"moves": moves}}] * 3, moving | {"data": {"moves": []}}]


def settings_paths() -> list[tuple[str, ...]]:
    """Every setting of a cluster."""
    found: list[tuple[str, ...]] = []

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if dataclasses.is_dataclass(value):
            for each in dataclasses.fields(value):
                walk(getattr(value, each.name), (*path, each.name))
        else:
            found.append(path)

    defaults = ClusterSettings()
    walk(defaults.pulsar, ("pulsar",))
    walk(defaults.kafka, ("kafka",))
    return found


class Traffic:
    """An endless log; told what was decided, it also sends results of it."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311  tests, not secrets
        by_kafka = [each for each in golden_events() if ".kafka." in each["type"]]
        common = [each for each in golden_events() if ".pulsar." not in each["type"] and each not in by_kafka]
        pulsar = [each for each in golden_events() if ".pulsar." in each["type"]]
        self._pulsar = recorded(150) + 5 * (pulsar + common)
        self._kafka = 5 * kafka_events() + 2 * (by_kafka + common)
        self._paths = settings_paths()
        self._clock_ms = dict.fromkeys((*PULSAR, *KAFKA, *EITHER), START_MS)
        self._decided: deque[str] = deque(maxlen=200)
        self._offset = 0

    def hear(self, outputs: list[Output]) -> None:
        """What was decided."""
        self._decided.extend(each.id for each in outputs if each.kind == "action")

    def records(self, count: int) -> Iterator[Record]:
        """The next of them."""
        for _ in range(count):
            yield self._record()

    def _record(self) -> Record:
        random = self._random
        self._offset += 1
        cluster = random.choice((*PULSAR * 4, *KAFKA * 4, *EITHER))
        kind = random.random()
        if kind < 0.03:
            event = {"type": CONTROL, "subject": "control", "data": self._control()}
        elif kind < 0.07 and self._decided:
            outcome = random.choice(("succeeded", "failed", "skipped"))
            event = {"type": RESULT, "subject": random.choice(self._decided), "data": {"outcome": outcome}}
        else:
            pool = (
                self._kafka
                if cluster in KAFKA or (cluster in EITHER and random.random() < 0.5)
                else self._pulsar
            )
            event = copy.deepcopy(random.choice(pool))
        event = self._brought_up_to_date(event, cluster)
        if random.random() < _DAMAGED:
            event = mutate(event, random)
        value = encoded(event, random)
        is_control = event.get("type") == CONTROL if random.random() < 0.99 else random.random() < 0.5
        return Record(
            value=None if random.random() < 0.001 else value,
            origin=Origin(
                topic="control" if is_control else "input",
                partition=0 if random.random() < 0.998 else 1,
                offset=self._offset,
            ),
            key=cluster if random.random() < 0.99 else random.choice((*NOWHERE, None, "other")),
            appended_ms=self._clock_ms[cluster] + random.choice((0, 5, 500))
            if random.random() < 0.9
            else None,
            is_control=is_control if random.random() < 0.99 else None,
        )

    def _brought_up_to_date(self, event: Event, cluster: str) -> Event:
        random = self._random
        step_ms = random.choices((0, 200, 1500, 12_000, 400_000, -8_000), (10, 30, 30, 3, 0.05, 3))[0]
        time_ms = self._clock_ms[cluster] + step_ms
        self._clock_ms[cluster] = max(time_ms, self._clock_ms[cluster])
        if random.random() < _AHEAD:
            time_ms += 60_000
        found = {"specversion": "1.0", "source": "/fuzz"} | event
        found |= {"id": f"{self._offset}", "time": rfc3339(time_ms), "cluster": cluster}
        found.pop("recordedtime", None)
        if event["type"].startswith("trimtab.pulsar.") and event["type"] != "trimtab.pulsar.cluster.v1":
            found["subject"] = f"b{random.randrange(_BROKERS)}:8080"
        if isinstance(found["data"], dict) and "msgRateIn" in found["data"]:
            found["data"] |= {"cpu": {"usage": random.choice((5.0, 30.0, 90.0, 350.0)), "limit": 400.0}}
        for replica in (
            found["data"].get("replicas", ()) if event["type"].endswith("kafka.load-report.v1") else ()
        ):
            replica["log_size_bytes"] = (time_ms - START_MS) * random.choice((1, 1, 1, 2)) + 10**6
        return found

    def _control(self) -> Event:
        random = self._random
        found: Event = {
            "paused": random.random() < 0.1,
            "mode": random.choice((None, "act", "act", "dry-run")),
        }
        overlay: Event = {}
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            *above, last = random.choice(self._paths)
            at = overlay
            for name in above:
                at = at.setdefault(name, {})
            at[last] = random.choice(
                (0, 1, 0.0, 1.0, True, False, random.choice(NUMBERS), extreme(random), [])
            )
        if random.random() < 0.3:
            found["resumed_at"] = rfc3339(min(self._clock_ms.values()))
        return found | {"settings": overlay, "who": "fuzz", "why": "to find what breaks"}


# fmt: off
NUMBERS: list[Any] = [
    0, -0.0, 1, -1, -2, 2, 0.5, 99.9, 100, 101, 1e-18, 1e-19, 5e-324, 1e-310, 1e18, 1.0000001e18, 1e19, 1e305,
    1.7976931348623157e308, -1e300, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**25, 10**400,
    -(2**63), -(2**63) - 1, float("nan"), float("inf"), float("-inf"), 3.0000000000000004, 1e9, 1e9 + 1,
]
TIMES: list[Any] = [
    "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-23:59", "9999-12-31T23:59:59Z", "8999-12-31T23:59:59Z", "2026-11-21T13:21Z",
    "2026-02-30T00:00:00Z", "2026-11-21T13:21:60Z", "2026-11-21T13:21:25", "2026-11-21t13:21:25z", "\ud800",
    "2026-11-21T13:21:25.206Z\ud800", "٢٠٢٦-11-21T13:21:25Z", "2026-11-21T13:21:25+24:00", " ", "0",
]
TEXTS: list[Any] = [
    "", " ", "\x00", "\n", "a\nb", "\ud800", "\udfff", "ü", "\u2028", "é" * 300, "x" * 5000, "NaN", "Infinity",
    "t/n/0x00000000_0x80000000", "t/n/0x0_0x0", "t/n/0xffffffff_0x00000000", "t/n/0xZ_0x1", "/", "//0x0_0x1",
    "pulsar/b1:8080/0x0_0xffffffff", "../..", "0:1,0:1", "0:", "*", "0:2147483648", ":" * 100, "-", ".", "..",
    "(", "[", "(a+)+$", "(?=x)", r"\1", "(?P<a", ".*", "a{100000}", "(" * 500, "\\", "x*" * 100, "null", "true",
    "act", "dry-run", "succeeded", "failed", "1.0", "application/json", "99999999999999999999", "-1", "101",
]
OTHERS: list[Any] = [
    None, True, False, [], {}, [[]], [None], {"": None}, {"usage": -1, "limit": -1}, ["x"] * 300,
]
TOKENS = [
    b"NaN", b"1e999", b"-1", b"null", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\ud800", b"\xff", b"\x00",
    b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\\u0000", b"1e308", b"9" * 400, b"\xef\xbb\xbf",
]
# fmt: on
_LIKE: dict[type, list[Any]] = {int: NUMBERS, float: NUMBERS, str: TEXTS, bool: [True, False]}


def extreme(random: Random, like: Any = None) -> Any:
    """A value that something may not expect; mostly of the type of ``like``, so that it gets further."""
    pool = random.choices((NUMBERS, TIMES, TEXTS, OTHERS), (5, 1, 3, 2))[0]
    if random.random() < 0.7:
        pool = _LIKE.get(type(like), pool)
    value = copy.deepcopy(random.choice(pool))
    return nested(value, random) if random.random() < 0.01 else value


def nested(value: Any, random: Random) -> Any:
    """Deep down; as deep as Python itself writes."""
    for _ in range(random.choice((2, 20, 150, 400))):
        value = {"a": value} if random.random() < 0.5 else [value]
    return value


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree with each of its keys or indexes."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        at = waiting.pop()
        inner = list(at.items()) if isinstance(at, dict) else list(enumerate(at))
        found.extend((at, key) for key, _ in inner)
        waiting.extend(value for _, value in inner if isinstance(value, dict | list))
    return found


def mutate(event: dict[str, Any], random: Random) -> dict[str, Any]:
    """The event with something in it replaced, scaled, removed, repeated, renamed or swapped."""
    found = copy.deepcopy(event)
    part = found.get("data") if random.random() < 0.8 else found
    at = places(part if isinstance(part, dict) and part else found)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        holder, key = random.choice(at)
        if _is_there(holder, key):
            _damage(holder, key, at, random)
    return found


def _is_there(holder: Any, key: Any) -> bool:
    """Whether an earlier mutation has left it."""
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _damage(holder: Any, key: Any, at: list[tuple[Any, Any]], random: Random) -> None:
    value = holder[key]
    kind = random.random()
    if kind < 0.45:
        holder[key] = extreme(random, value)
    elif kind < 0.65 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = _scaled(value, random)
    elif kind < 0.72:
        other, place = random.choice(at)
        try:
            holder[key] = copy.deepcopy(other[place])
        except (KeyError, IndexError):
            holder[key] = extreme(random)
    elif kind < 0.8:
        del holder[key]
    elif isinstance(holder, dict):
        name = random.choice(TEXTS) if random.random() < 0.5 else f"{key}x"
        holder[name] = copy.deepcopy(value) if random.random() < 0.5 else extreme(random)
    else:
        holder.extend([copy.deepcopy(value)] * random.choice((1, 1, 3, 50)))


def _scaled(value: float, random: Random) -> Any:
    scale = random.choice((0, -1, 0.1, 10, 1e6, 1e12, 1e300))
    try:
        found = value * scale
        return int(found) if isinstance(value, int) and abs(found) < 2**70 else found
    except OverflowError:
        return value


def encoded(event: dict[str, Any], random: Random) -> bytes:
    """As JSON, escaped or in UTF-8 (with what is none of it), then perhaps with damaged bytes."""
    if random.random() < 0.7:
        value = json.dumps(event).encode()
    else:
        value = json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return damaged(value, random) if random.random() < 0.1 else value


def damaged(value: bytes, random: Random) -> bytes:
    """With some bytes replaced, cut off or inserted."""
    found = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(found) + 1)
        new = random.choice(TOKENS) if random.random() < 0.7 else random.randbytes(random.randrange(4))
        found[place : place + random.choice((0, 1, 3, len(new)))] = new
    if random.random() < 0.1:
        del found[random.randrange(len(found) + 1) :]
    if random.random() < 0.02:
        place = found.find(b'"data"')
        depth = random.choice((200, 1000, 20_000))
        found[place + 8 : place + 8] = b'{"a":' * depth + b"1" + b"}" * random.choice((0, depth))
    return bytes(found)
