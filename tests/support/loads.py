"""What brokers send in the live tests: the recording of a real cluster, and a small fleet that leans to one side."""

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from tests.streaming.events import control, report, tick, traffic

RECORDINGS = Path(__file__).parents[1] / "recordings"
RECORDED_SETTINGS = (RECORDINGS / "pulsar-3-brokers.toml").read_text()
RECORDED_LATENESS_S = 5.0
RECORDED_CLUSTER = "lab"

LENGTH_S = 10
LATENESS_S = 5
START_S = 1_700_000_000
"""A multiple of the round's length, long past: records in the tests are never appended before it."""


def recording() -> list[bytes]:
    """The recorded events, a line each."""
    with gzip.open(RECORDINGS / "pulsar-3-brokers.ndjson.gz", "rb") as lines:
        return [line.strip() for line in lines]


def renamed(events: Iterable[bytes], cluster: str) -> list[bytes]:
    """The same events of another cluster."""
    before, after = (f'"cluster":"{name}"'.encode() for name in (RECORDED_CLUSTER, cluster))
    return [value.replace(before, after, 1) for value in events]


def time_of(value: bytes) -> float:
    """Event time in seconds since the epoch."""
    return datetime.fromisoformat(json.loads(value)["time"]).timestamp()


def shuffled(events: Sequence[bytes], *, within_s: float, seed: int) -> list[bytes]:
    """Each event late by up to `within_s`, as if it had been on its way for that long."""
    chance = random.Random(seed)  # noqa: S311  a test wants the same order every time
    arrivals = [(time_of(value) + chance.uniform(0, within_s), value) for value in events]
    return [value for _, value in sorted(arrivals, key=lambda arrival: arrival[0])]


def recorded_control(cluster: str, *, paused_s: float, resumed_s: float, first_s: float) -> list[bytes]:
    """A pause and a resumption with another setting, so many seconds after the recording begins."""
    settings = {"pulsar": {"avg_shedder": {"low_hit_count": 2}}}
    return [
        said(paused=True, time_s=first_s + paused_s, cluster=cluster),
        said(paused=False, time_s=first_s + resumed_s, cluster=cluster, settings=settings),
    ]


def said(*, paused: bool, time_s: float, cluster: str = "east-1", **data: object) -> bytes:
    """A control event of an operator."""
    id_ = f"{'pause' if paused else 'resume'}-{time_s:g}"
    told = {"paused": paused, "who": "ops", "why": "test", **data}
    return control(time_s=time_s, cluster=cluster, id=id_, data=told)


def leaning(
    number: int, *, cluster: str = "east-1", brokers: int = 2, moved: Sequence[str] = ()
) -> list[bytes]:
    """One round's reports: the first broker has all the traffic but that of the `moved` bundles; nothing yet closes the round."""
    time_s = START_S + number * LENGTH_S + 1
    return list(_reports(time_s, cluster, brokers, moved))


def _reports(time_s: float, cluster: str, brokers: int, moved: Sequence[str]) -> Iterator[bytes]:
    owned = [_bundles(place) for place in range(brokers)]
    for bundle in moved:
        owned[1][bundle] = owned[0].pop(bundle)
    for place, bundles in enumerate(owned):
        yield report(
            f"broker-{place + 1}:8080",
            time_s=time_s + place / 1000,
            cluster=cluster,
            cpu=(50.0 - 8 * len(moved) if place == 0 else 30.0 + 8 * len(moved), 100.0),
            bundles=bundles,
        )


def _bundles(place: int) -> dict[str, dict[str, object]]:
    rate = 100.0 if place == 0 else 10.0
    return {
        f"shop/orders{place}/0x{quarter:x}0000000_0x{quarter + 4:x}0000000": traffic(rate + quarter)
        for quarter in (0, 4, 8)
    }


def closing(number: int, *, cluster: str = "east-1") -> bytes:
    """The tick that closes a round."""
    return tick(time_s=START_S + (number + 1) * LENGTH_S + LATENESS_S, cluster=cluster)


def played(numbers: Iterable[int], *, cluster: str = "east-1", moved: Sequence[str] = ()) -> list[bytes]:
    """Rounds that lean, each closed."""
    return [
        value
        for number in numbers
        for value in (*leaning(number, cluster=cluster, moved=moved), closing(number, cluster=cluster))
    ]
