"""What brokers report of a simulated fleet, and when it arrives: events as the decoder would make them.

A broker takes its figures once a minute, each at a moment of its own, as means over the minute; a collector asks all of them twice a
minute. So after a move the old owner still lists the bundle until its next figures. With the extensible load manager brokers publish
instead (``Publisher``), and the collector asks which broker owns which bundle. Random numbers are drawn in
the same order, whatever balances the fleet.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.usage import NOT_MEASURED
from state.events import (
    ActionOutcome,
    ActionResult,
    BrokerLoad,
    BrokerReport,
    ClusterFacts,
    Event,
    LoadReport,
    Published,
    Tick,
    TopicStats,
    TopicTraffic,
)
from streaming.simulator.fleet import TICK_S, Fleet, Moved
from streaming.simulator.setup import CPU

_HISTORY_RATIO = 0.9
"""``loadBalancerHistoryResourcePercentage``."""
_LOOK_S = 5.0
"""``loadBalancerReportUpdateMinIntervalMillis``."""
_CHANGED_PERCENT = 10.0
"""``loadBalancerReportUpdateThresholdPercentage``."""
_LONGEST_MS = 15 * 60 * 1000
"""``loadBalancerReportUpdateMaxIntervalMinutes``."""
_TOP_COUNT = 10
"""``loadBalancerMaxNumberOfBundlesInBundleLoadReport``."""


@dataclass(slots=True)
class _Broker:
    usage_ratio: float | None = None
    """Smoothed usage; None where the smoothing begins anew."""
    bytes_per_s: float = 0.0
    top: list[tuple[str, float]] = field(default_factory=list)
    """Its heaviest bundles as last published, the lightest first."""
    figures: BrokerReport | None = None
    published: tuple[BrokerReport, float, float, int] | None = None
    """Figures, smoothed usage and throughput of the last time it published its load, and when that was."""


class Publisher:
    """What all brokers publish about themselves where Pulsar's extensible load manager runs (PIP-192), by their rows.

    A broker looks at its load every five seconds, smooths it with each look, and publishes it when it has changed by much, or after a
    quarter of an hour; in between, other programs see the old values. It takes the figures of its bundles once a minute, and
    publishes the heaviest. When a bundle comes or goes it withdraws both: the smoothing begins anew, and its heaviest bundles are
    known again with its next figures.

    Source: Pulsar ``BrokerLoadDataReporter``, ``BrokerLoadData.update`` and ``TopKBundles``. The configuration keys have their defaults.
    """

    def __init__(self, brokers_count: int) -> None:
        self._brokers = [_Broker() for _ in range(brokers_count)]

    def take_figures(self, row: int, figures: BrokerReport) -> None:
        """A broker has new figures of its bundles, a minute after the last ones."""
        volumes = figures.traffic[:, 2:].sum(axis=1)
        heaviest = np.argsort(volumes, kind="stable")[-_TOP_COUNT:].tolist()
        broker = self._brokers[row]
        broker.figures = figures
        broker.top = [(figures.bundles[at], float(volumes[at])) for at in heaviest]

    def take_back(self, row: int) -> None:
        """A bundle has come to the broker, or left it."""
        self._brokers[row] = _Broker(figures=self._brokers[row].figures)

    def forget(self, row: int) -> None:
        """The broker is gone."""
        self._brokers[row] = _Broker()

    def sample_load(self, row: int, *, looked_s: float, time_ms: int) -> None:
        """The broker has looked at its load for ``looked_s``, until ``time_ms``."""
        broker = self._brokers[row]
        if broker.figures is None:
            return
        usage_ratio = _usage_ratio(broker.figures)
        for _ in range(round(looked_s / _LOOK_S)):
            if broker.usage_ratio is None:
                broker.usage_ratio, broker.bytes_per_s = usage_ratio, broker.figures.bytes_per_s
            else:
                broker.usage_ratio = _smooth(broker.usage_ratio, usage_ratio)
                broker.bytes_per_s = _smooth(broker.bytes_per_s, broker.figures.bytes_per_s)
        assert broker.usage_ratio is not None
        if self._is_due(broker, usage_ratio, time_ms):
            broker.published = broker.figures, broker.usage_ratio, broker.bytes_per_s, time_ms

    @staticmethod
    def _is_due(broker: _Broker, usage_ratio: float, time_ms: int) -> bool:
        if broker.published is None or broker.figures is None:
            return True
        before, _, _, published_ms = broker.published
        changes = (
            100.0 * abs(usage_ratio - _usage_ratio(before)),
            _change_percent(before.messages_per_s, broker.figures.messages_per_s),
            _change_percent(before.bytes_per_s, broker.figures.bytes_per_s),
            _change_percent(before.listed_count, broker.figures.listed_count),
        )
        return max(changes) > _CHANGED_PERCENT or time_ms - published_ms > _LONGEST_MS

    def report_of(self, row: int, owned: list[str]) -> BrokerReport | None:
        """The report that a collector makes; ``owned``: bundles that the broker owns now, ascending. None: nothing is published."""
        broker = self._brokers[row]
        if broker.published is None:
            return None
        figures, usage_ratio, bytes_per_s, updated_ms = broker.published
        place = {name: at for at, name in enumerate(owned)}
        traffic = np.zeros((len(owned), 4))
        has_traffic, counts = np.zeros(len(owned), dtype=np.bool_), np.zeros((len(owned), 2), dtype=np.int64)
        assert broker.figures is not None
        latest = {name: at for at, name in enumerate(broker.figures.bundles)}
        for name, _ in broker.top:
            if name in place:
                traffic[place[name]] = broker.figures.traffic[latest[name]]
                has_traffic[place[name]] = True
                counts[place[name]] = broker.figures.counts[latest[name]]
        return replace(
            figures,
            listed_count=len(owned),
            bundles=owned,
            traffic=traffic,
            has_traffic=has_traffic,
            counts=counts,
            published=Published(
                usage_ratio=usage_ratio,
                bytes_per_s=bytes_per_s,
                updated_ms=updated_ms,
                top_bundles=[name for name, _ in broker.top],
                top_bytes_per_s=np.array([volume for _, volume in broker.top]),
            ),
        )


def _usage_ratio(figures: BrokerReport) -> float:
    """The largest of CPU and bandwidth, whose weights are 1."""
    used, limits = figures.resources[:3].T
    return float((used / limits).max())


def _smooth(before: float, now: float) -> float:
    return before * _HISTORY_RATIO + (1.0 - _HISTORY_RATIO) * now


def _change_percent(before: float, now: float) -> float:
    if before == 0:
        return 0.0 if now == 0 else float("inf")
    return 100.0 * abs(now - before) / before


STATS_TICKS = 6
"""Ticks between two figures of a broker: a minute."""
SWEEP_TICKS = 3
"""Ticks between two sweeps of the collector."""
_JITTER_S = 3.0


class _Arrival(NamedTuple):
    at_s: float
    place: int
    event: Event


class Reporter:
    """Takes the figures after each tick, and gives the events that have arrived."""

    def __init__(
        self,
        fleet: Fleet,
        rng: np.random.Generator,
        *,
        start_ms: int,
        with_topics: bool,
        are_published: bool = False,
    ) -> None:
        """``are_published``: brokers publish their load, with the extensible load manager."""
        self._fleet, self._rng = fleet, rng
        self._start_ms, self._with_topics = start_ms, with_topics
        count = len(fleet.alive)
        self._publisher = Publisher(count) if are_published else None
        self._phase = rng.integers(0, STATS_TICKS, count)
        self._error = rng.standard_normal(count)
        self._sums: Floats = np.zeros((count, 4))
        self._bundle_sums: Floats = np.zeros((0, 5))
        self._bundle_owner: Ints = np.zeros(0, dtype=np.int64)
        self._ticks: Ints = np.zeros(count, dtype=np.int64)
        self._figures: dict[int, tuple[BrokerReport, TopicTraffic | None]] = {}
        self._silent: Bools = np.zeros(count, dtype=np.bool_)
        self._arriving: list[_Arrival] = []
        self._tick = 0
        self._events = 0

    def take(self, moved: list[Moved]) -> list[Event]:
        """Look at the fleet after a tick; returns the events that have arrived by its end, in the order of their arrival."""
        self._tick += 1
        self._add_up()
        self._renew_figures()
        for each in moved:
            if each.id:
                self.answer(each.id, succeeded=each.succeeded)
        if self._tick % SWEEP_TICKS == 0:
            self._sweep()
        due = sorted(each for each in self._arriving if each.at_s <= self._fleet.time_s)
        self._arriving = [each for each in self._arriving if each.at_s > self._fleet.time_s]
        return [each.event for each in due]

    def _add_up(self) -> None:
        fleet = self._fleet
        measuring = fleet.setup.measuring
        kept = math.exp(-TICK_S / measuring.cpu_error_s)
        fresh = self._rng.standard_normal(len(self._error))
        self._error = kept * self._error + math.sqrt(1 - kept * kept) * fresh
        seen = fleet.usage_points.copy()
        seen[:, CPU] += measuring.cpu_error_points * self._error
        self._sums += seen
        self._ticks += 1
        count = len(fleet.bundles.names)
        if len(self._bundle_sums) < count:
            more = count - len(self._bundle_sums)
            self._bundle_sums = np.concatenate([self._bundle_sums, np.zeros((more, 5))])
            self._bundle_owner = np.concatenate([self._bundle_owner, np.full(more, -1)])
        is_new = self._bundle_owner != fleet.bundles.owner
        self._bundle_sums[is_new] = 0.0
        if self._publisher is not None:
            self._publish(np.concatenate([self._bundle_owner[is_new], fleet.bundles.owner[is_new]]))
        self._bundle_owner = fleet.bundles.owner.copy()
        self._bundle_sums += fleet.rates

    def _publish(self, changed: Ints) -> None:
        """``changed`` are the rows of brokers whose bundles came or went, -1 for none."""
        assert self._publisher is not None
        for row in set(changed.tolist()) - {-1}:
            self._publisher.take_back(row)
        for row in np.flatnonzero(self._fleet.alive).tolist():
            self._publisher.sample_load(row, looked_s=TICK_S, time_ms=self._ms(self._fleet.time_s))

    def _renew_figures(self) -> None:
        measuring = self._fleet.setup.measuring
        spikes = self._rng.random(len(self._ticks)) < measuring.spike_ratio
        heights = measuring.spike_points * self._rng.random(len(self._ticks))
        silent = self._rng.random(len(self._ticks)) < measuring.silent_ratio
        due = np.flatnonzero(self._phase == self._tick % STATS_TICKS)
        if not len(due):
            return
        self._silent[due] = silent[due]
        rows_by_broker = self._fleet.rows_by_broker()
        for broker in due.tolist():
            if self._fleet.alive[broker] and self._ticks[broker]:
                points = self._sums[broker] / self._ticks[broker]
                points[CPU] += heights[broker] if spikes[broker] else 0.0
                self._figures[broker] = self._figure(
                    broker, np.clip(points, 0.0, 100.0), rows_by_broker[broker]
                )
                if self._publisher is not None:
                    self._publisher.take_figures(broker, self._figures[broker][0])
            else:
                self._figures.pop(broker, None)
                if self._publisher is not None:
                    self._publisher.forget(broker)
            self._sums[broker], self._ticks[broker] = 0.0, 0
            self._bundle_sums[rows_by_broker[broker]] = 0.0

    def _figure(self, broker: int, points: Floats, rows: Ints) -> tuple[BrokerReport, TopicTraffic | None]:
        machines, names = self._fleet.setup.machines, self._fleet.bundles.names
        flapping, bundles = self._fleet.setup.flapping, self._fleet.bundles
        if flapping is not None and self._tick // STATS_TICKS % 2:
            rows = rows[~flapping[bundles.source[rows]]]
        rows = np.array(sorted(rows.tolist(), key=names.__getitem__), dtype=np.int64)
        traffic = self._bundle_sums[rows] / self._ticks[broker]
        cores, network = machines.cores[broker], machines.network_bytes_per_s[broker] * 8 / 1000
        limits = np.array([100.0 * cores, network, network])
        known, resources = machines.is_measured[broker], np.full((4, 2), NOT_MEASURED)
        resources[:3][known] = np.column_stack([points[:3] / 100.0 * limits, limits])[known]
        resources[CPU, 1] /= self._fleet.setup.measuring.cpu_limit_ratio if known[CPU] else 1.0
        total = traffic.sum(axis=0)
        topics = np.bincount(bundles.topic_bundle, minlength=len(names))
        report = BrokerReport(
            resources=resources,
            messages_per_s=float(total[0] + total[1]),
            bytes_per_s=float(total[2] + total[3]),
            listed_count=len(rows),
            bundles=[names[row] for row in rows.tolist()],
            traffic=traffic[:, :4],
            has_traffic=np.ones(len(rows), dtype=np.bool_),
            counts=np.column_stack([topics[rows], np.rint(traffic[:, 4])]).astype(np.int64),
        )
        return report, self._topics(rows, traffic) if self._with_topics else None

    def _topics(self, rows: Ints, traffic: Floats) -> TopicTraffic:
        bundles = self._fleet.bundles
        counts, at = bundles.topics_of(rows)
        share = bundles.topic_share[at] / np.repeat(np.maximum(bundles.share[rows], 1e-12), counts)
        each = np.repeat(traffic, counts, axis=0) * share[:, None]
        return TopicTraffic(
            bundles=[bundles.names[row] for row in rows.tolist()],
            counts=counts,
            topics=[bundles.topics[row] for row in at.tolist()],
            messages_per_s=each[:, 0] + each[:, 1],
            bytes_per_s=each[:, 2] + each[:, 3],
            sessions=np.zeros(len(at), dtype=np.int64),
        )

    def _sweep(self) -> None:
        fleet, names = self._fleet, self._fleet.setup.machines.names
        measuring, count = fleet.setup.measuring, len(fleet.alive)
        jitter = _JITTER_S * self._rng.random(count)
        lost = self._rng.random(count) < measuring.lost_ratio
        late = self._rng.random(count) < measuring.late_ratio
        late_s = measuring.late_s * self._rng.random(count)
        asked = [row for row in range(count) if fleet.alive[row] and row in self._figures]
        rows_by_broker = None if self._publisher is None else fleet.rows_by_broker()
        for row in asked:
            if lost[row] or self._silent[row]:
                continue
            time_s = fleet.time_s - _JITTER_S + jitter[row]
            arrives_s = time_s + (late_s[row] if late[row] else 0.0)
            report = self._load_report(names[row], row, time_s, rows_by_broker)
            if report is not None:
                self._send(arrives_s, report)
            topics = self._figures[row][1]
            if topics is not None:
                id_, time_ms = f"{names[row]}/topics/{self._ms(time_s)}", self._ms(time_s)
                self._send(arrives_s, TopicStats(id=id_, time_ms=time_ms, broker=names[row], traffic=topics))
        facts, now_ms = fleet.setup.facts, self._ms(fleet.time_s)
        if facts is not None and self._tick == SWEEP_TICKS:
            self._send(fleet.time_s, ClusterFacts(id=f"facts/{now_ms}", time_ms=now_ms, facts=facts))
        failed = tuple((names[row], "timed out") for row in asked if self._silent[row])
        tick = Tick(
            id=f"tick/{now_ms}", time_ms=now_ms, asked=tuple(names[row] for row in asked), failed=failed
        )
        self._send(fleet.time_s, tick)

    def _load_report(
        self, broker: str, row: int, time_s: float, rows_by_broker: list[Ints] | None
    ) -> LoadReport | None:
        """``rows_by_broker`` has the bundles of each broker now, if brokers publish. Returns None if the broker has published nothing."""
        id_, time_ms = f"{broker}/{self._ms(time_s)}", self._ms(time_s)
        if self._publisher is None or rows_by_broker is None:
            return LoadReport(id=id_, time_ms=time_ms, broker=broker, report=self._figures[row][0])
        names = self._fleet.bundles.names
        report = self._publisher.report_of(row, sorted(names[at] for at in rows_by_broker[row].tolist()))
        return None if report is None else BrokerLoad(id=id_, time_ms=time_ms, broker=broker, report=report)

    def answer(self, id_: str, *, succeeded: bool) -> None:
        """Send the result of an action."""
        time_ms = self._ms(self._fleet.time_s)
        outcome: ActionOutcome = "succeeded" if succeeded else "failed"
        result = ActionResult(id=f"result/{id_}", time_ms=time_ms, action_id=id_, outcome=outcome)
        self._send(self._fleet.time_s, result)

    def _send(self, at_s: float, event: Event) -> None:
        self._events += 1
        self._arriving.append(_Arrival(at_s, self._events, event))

    def _ms(self, time_s: float) -> int:
        return self._start_ms + round(1000 * time_s)
