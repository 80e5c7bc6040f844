"""Real copies of every kind on three local brokers with two disks each: foretold and measured, and what producers feel.

``python -m tests.bench --only copies-live`` draws ``docs/use/throttling-recovery.svg``, ``-disks.svg`` and ``-all.svg``. A broker that comes
back without trimtab is measured as well. It takes half an hour, and needs Linux and root, see ``Network``.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deploy.local.kafka import LocalKafka
from streaming.kafka.client import Unanswered
from streaming.kafka.cluster import Partition
from streaming.kafka.throttles import Throttle
from streaming.settings import load
from tests.bench.report import Row, Section
from tests.bench.throttle_live import Line, plot, predictions
from tests.support.moving import CLUSTER, RECORD_BYTES, Moving, TwoDisks, pipeline
from tests.support.network import Network
from tests.support.processes import TRIMTAB, Child, ask, command, until
from tests.support.stage import Stage

_DOCS = Path(__file__).parents[2] / "docs" / "use"
_MB = 1_000_000
_WRITES = _MB // 2
_RATE = 3 * _MB
_DISK_RATE = 3 * _MB
_AWAY_S = 60.0
_MISSED_BYTES = 50 * _MB
"""Written to each partition when a broker has just gone, so that far more is missing than the ten seconds' worth that pass at once,
and long before its absence counts: what is written then is what the minimum is made of."""
_BEFORE_S = 30.0
_FELT_S = 15.0
"""The shortest span over which producers are looked at: the start of a broker takes some of it, whether it is paced or not."""
_TIMES = 3
_CARD_BYTES_PER_S = 10 * _MB
"""Of each broker, each way: on loopback nobody would feel a copy at line rate."""
_ASSIGNED = {0: (1, 2, 3), 1: (1, 2, 3)}
"""One broker leads: where many do, it is the card of the one that comes back that is full, and producers do not use that."""
_OTHER = {0: (1, 2)}
_OTHER_TARGET = {0: (1, 3)}
_FILL_BYTES = _OTHER_BYTES = 50 * _MB
_SAMPLE_S = 0.5
_RULES = f"""
[kafka.rounds]
length_s = 6
lateness_s = 2

[kafka.throttle]
floor_bytes_per_s = {_RATE}
recovery_after_s = 25
recovery_min_bytes = {_MB}

[kafka.capacity]
disk_bytes_per_s = {_DISK_RATE}

[targets."{CLUSTER}".kafka]
"""


@dataclass(slots=True)
class _Lab:
    """A cluster, a topic that is written to, and a second one; trimtab beside them."""

    kafka: LocalKafka
    moving: Moving
    other: Moving
    stage: Stage
    waits: list[tuple[float, float]] = field(default_factory=list)
    left: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    began_s: float = 0.0
    felt_s: float = 0.0
    """From when on producers may feel it: a broker begins to fetch before it is registered."""
    is_paced: bool = True

    def p99_s(self, since_s: float, until_s: float) -> float:
        """What 99 of 100 records took that were sent meanwhile; seconds of ``time.monotonic``."""
        took = [wait for sent_s, wait in self.waits if since_s <= sent_s < until_s]
        return statistics.quantiles(took, n=100)[98]

    def begin(self) -> None:
        """The copies begin now."""
        self.began_s = time.monotonic()
        self.felt_s = self.felt_s or self.began_s

    def follow(self, kinds: Mapping[str, Callable[[], int | None]]) -> None:
        """Note what is left of each kind of copy, until nothing is."""
        pending = dict(kinds)
        while pending:
            for kind, left_bytes in list(pending.items()):
                try:
                    found = left_bytes()
                except Unanswered:
                    self.moving.connect()
                    continue
                if found is not None:
                    self.left.setdefault(kind, []).append((time.monotonic() - self.began_s, found / _MB))
                if found == 0:
                    del pending[kind]
            time.sleep(_SAMPLE_S)


@contextmanager
def _lab(*, is_paced: bool = True) -> Iterator[_Lab]:
    """Producers write to the topic; trimtab's own topics are on another Kafka, which loses no broker."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = stack.enter_context(LocalKafka(directory / "own"))
        network = stack.enter_context(Network(3, card_bytes_per_s=_CARD_BYTES_PER_S))
        kafka = stack.enter_context(TwoDisks(directory / "kafka", nodes=3, machines=network.machines))
        moving, other = Moving(kafka, _ASSIGNED), Moving(kafka, _OTHER)
        stage = Stage(own.bootstrap, "bench", directory)
        lab = _Lab(kafka, moving, other, stage, is_paced=is_paced)
        stack.callback(stage.close)
        if is_paced:
            stage.create_topics()
            config = stage.settings(base=f'{_RULES}bootstrap = "{kafka.bootstrap}"\n')
            run = stack.enter_context(
                Child((*TRIMTAB, "run", "--config", str(config), "--from", "earliest"), directory / "run.log")
            )
            until(lambda: ask(f"{run.url}/readyz").status == 200, what="readiness", running=[run])
            settings = load(file=config, flags={}, environ={}).settings
            stack.enter_context(pipeline(settings, cluster=CLUSTER))
            until(lambda: stage.data(stage.topics.audit), what="a round", running=[run])
        stack.enter_context(moving.written(_WRITES, waits=lab.waits))
        time.sleep(_BEFORE_S)
        yield lab


@dataclass(frozen=True, slots=True)
class _Copied:
    """What one run showed; seconds count from the moment at which the copies began."""

    left: Mapping[str, Sequence[tuple[float, float]]]
    measured_s: float
    foretold_s: float | None
    before_s: float
    """p99 of the producers in the half minute before."""
    meanwhile_s: float

    @property
    def copied_bytes_per_s(self) -> float:
        """What was copied in the mean, with what producers wrote meanwhile; of a broker that came back."""
        return (
            max(left for _, left in self.left["recovery"]) * _MB / self.measured_s + len(_ASSIGNED) * _WRITES
        )

    @property
    def off(self) -> float:
        """The foretold end against the measured one, the larger of the quotient and its inverse."""
        quotient = self.measured_s / (self.foretold_s or float("nan"))
        return max(quotient, 1 / quotient)


def _copied(lab: _Lab, before_s: float, foretold_s: float | None = None) -> _Copied:
    """To be called when everything is copied; the end is foretold by the first round that can, unless it was before."""
    measured_s = time.monotonic() - lab.began_s
    time.sleep(max(lab.felt_s + _FELT_S - time.monotonic(), 0))
    before, after = lab.p99_s(before_s - _BEFORE_S, before_s), lab.p99_s(lab.felt_s, time.monotonic())
    if foretold_s is None and lab.is_paced:
        found = predictions(lab.stage.data(lab.stage.topics.audit), time.time() - measured_s)
        foretold_s = next((each.end_s for each in found if each.at_s >= 0), None)
    kinds = f"{' and '.join(lab.left)}, {'paced' if lab.is_paced else 'free'}"
    felt = f"producers' p99 {1000 * before:.0f} ms before and {1000 * after:.0f} ms meanwhile"
    sys.stderr.write(f"  {kinds}: copied in {measured_s:.0f} s, {felt}\n")
    return _Copied(lab.left, measured_s, foretold_s, before, after)


def _recoveries(*, times: int, is_paced: bool = True) -> list[_Copied]:
    """A broker goes away and comes back, so many times."""
    found = []
    with _lab(is_paced=is_paced) as lab:
        for _ in range(times):
            lab.left, lab.felt_s = {}, 0.0
            before_s = time.monotonic()
            _away(lab)
            lab.begin()
            lab.follow({"recovery": partial(lab.moving.behind_bytes, 3)})
            found.append(_copied(lab, before_s))
            until(lambda: lab.moving.throttle() == Throttle(), what="a cluster without a throttle")
            time.sleep(_BEFORE_S)
    return found


def _disks(*, bytes_each: int) -> _Copied:
    with _lab() as lab:
        lab.moving.fill(bytes_each, record_bytes=RECORD_BYTES)
        time.sleep(_BEFORE_S)
        before_s = time.monotonic()
        foretold_s = _plan_disks(lab)
        lab.begin()
        _move_disks(lab)
        lab.follow({"disks": partial(_disk_left_bytes, lab)})
        return _copied(lab, before_s, foretold_s)


def _all() -> _Copied:
    """A broker comes back, gains another replica as well, and another one moves replicas between its disks."""
    with _lab() as lab:
        lab.other.fill(_OTHER_BYTES, record_bytes=RECORD_BYTES)
        time.sleep(_BEFORE_S)
        before_s = time.monotonic()
        _plan_disks(lab)
        _away(lab)
        lab.begin()
        lab.other.begin(_OTHER_TARGET)
        _move_disks(lab)
        lab.follow(
            {
                "recovery": partial(lab.moving.behind_bytes, 3),
                "reassignment": partial(lab.other.left_bytes, _OTHER_TARGET),
                "disks": partial(_disk_left_bytes, lab),
            }
        )
        return _copied(lab, before_s)


def _away(lab: _Lab) -> None:
    """Stop broker 3 for a while, and start it; returns when it begins to fetch."""
    back_s = lab.moving.miss(3, _MISSED_BYTES) + _AWAY_S
    time.sleep(max(back_s - time.monotonic(), 0))
    lab.felt_s = time.monotonic()
    lab.kafka.start_node(3)
    lab.moving.connect()
    lab.other.connect()


def _other_disks(lab: _Lab) -> dict[Partition, str]:
    """Where the replicas of broker 1 shall go."""
    where = [(lab.moving.topic, number) for number in _ASSIGNED]
    logs = lab.moving.cluster.log_sizes(where, [1])
    return {
        each: next(path for path in logs.directories[1] if path != logs.directory_of[each][1])
        for each in where
    }


def _plan_disks(lab: _Lab) -> float:
    """Set the rate as the command plans it; returns the seconds that it foretells."""
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": _ASSIGNED[number],
            "log_dirs": [path if broker == 1 else "any" for broker in _ASSIGNED[number]],
        }
        for (topic, number), path in _other_disks(lab).items()
    ]
    asked = (
        "throttle",
        "plan",
        "--bootstrap",
        lab.kafka.bootstrap,
        "--input",
        "-",
        "--rate",
        str(_DISK_RATE),
    )
    answer = command(*asked, "--apply", given=json.dumps({"version": 1, "partitions": rows}))
    foretold_s: float = json.loads(answer.stdout)["uniform"]["total_s"]
    return foretold_s


def _move_disks(lab: _Lab) -> None:
    lab.moving.admin.alter_replica_log_dirs({(*where, 1): path for where, path in _other_disks(lab).items()})


def _disk_left_bytes(lab: _Lab) -> int:
    lags = lab.moving.cluster.log_sizes([(lab.moving.topic, number) for number in _ASSIGNED], [1]).disk_lags
    return RECORD_BYTES * sum(records for by_broker in lags.values() for records in by_broker.values())


_COLOURS = {"recovery": "#1f6feb", "reassignment": "#8250df", "disks": "#1a7f37"}


def _draw(name: str, title: str, run: _Copied) -> None:
    foretold_s = run.foretold_s or 0.0
    most = max(left for line in run.left.values() for _, left in line)
    lines = [Line(kind, points, _COLOURS[kind]) for kind, points in run.left.items()]
    end = Line("foretold end", [(foretold_s, 0.0), (foretold_s, most / 4)], "#888888", is_dashed=True)
    text = f"{title}: foretold {foretold_s:.0f} s, measured {run.measured_s:.0f} s"
    picture = plot(title=text, x="seconds since the start", y="MB left", lines=[*lines, end])
    (_DOCS / f"throttling-{name}.svg").write_text(picture, encoding="utf-8")


def _felt(name: str, runs: Sequence[_Copied]) -> Iterator[Row]:
    before_s = statistics.median(run.before_s for run in runs)
    meanwhile_s = statistics.median(run.meanwhile_s for run in runs)
    yield Row(f"producers before, {name}", 1000 * before_s, "ms")
    yield Row(f"producers meanwhile, {name}", 1000 * meanwhile_s, "ms")


def _taken(name: str, runs: Sequence[_Copied]) -> Iterator[Row]:
    yield Row(f"a broker that comes back, {name}", statistics.median(run.measured_s for run in runs), "s")
    share = statistics.median(run.copied_bytes_per_s for run in runs) / _CARD_BYTES_PER_S
    yield Row(f"what it takes of the card, {name}", 100 * share, "%")


def measure_copies_live(*, quick: bool) -> Section:
    """One run of each kind, and several of a broker that comes back with and without trimtab."""
    times = 1 if quick else _TIMES
    paced = _recoveries(times=times)
    free = _recoveries(times=times, is_paced=False)
    disks = _disks(bytes_each=_FILL_BYTES // 4 if quick else _FILL_BYTES)
    every = _all()
    _draw("recovery", "A broker comes back", paced[0])
    _draw("disks", "Two replicas change their disk", disks)
    _draw("all", "All three kinds at once", every)
    rows = [
        Row(f"{name}: measured ÷ foretold", run.off, "x", at_most=1.5)
        for name, run in (("a broker comes back", paced[0]), ("disks", disks), ("all three", every))
    ]
    return Section(
        title="Copies of every kind",
        method=f"Three local brokers with two disks each, each behind a network card of {_CARD_BYTES_PER_S / _MB:.0f} MB/s, producers that wait for all in-sync replicas write {_WRITES / _MB:g} MB/s to "
        f"each of two partitions. Broker 3 is away for {_AWAY_S:.0f} s, and misses more than {2 * _MISSED_BYTES / _MB:.0f} MB. "
        f"Rate {_RATE / _MB:.0f} MB/s between brokers and "
        f"{_DISK_RATE / _MB:.0f} MB/s between disks. *producers* is the 99th percentile of what a record took in the "
        f"{_BEFORE_S:.0f} s before, and while anything was copied; the median of {times} runs for a broker that comes back. These few "
        "connections share the card fairly, so producers feel little even of a copy at line rate, and Kafka's limiter lets ten seconds' "
        "worth of the rate pass at line rate, too: what the throttle gives shows in what the copy takes of the card in the mean. "
        "The end is foretold by the first round that sees the copies, and between disks by the command before the start.",
        rows=[
            *rows,
            *_felt("a broker comes back, paced", paced),
            *_felt("the same without a throttle", free),
            *_felt("disks, paced", [disks]),
            *_felt("all three, paced", [every]),
            *_taken("paced", paced),
            *_taken("without a throttle", free),
        ],
    )
