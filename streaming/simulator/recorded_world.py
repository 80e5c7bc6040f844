"""A recorded cluster in which moves have their effect: what its brokers would have reported.

Time, traffic, brokers, their limits and the noise of their figures are the recording's. A bundle that a candidate moved or cut counts
at its new broker: from the next reports on, its traffic and what that costs is taken from one broker's figures and added to another's.
Invariant: while a candidate has changed nothing, it sees exactly the reports that were recorded.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import BANDWIDTH_OUT, Costs, figures_of
from policies.splitting.ranges import BadRange, Bundle, positions_of
from policies.usage import REPORTED_COUNT, percent, weighted_maximum_ratio
from state.events import (
    ActionResult,
    BrokerReport,
    Control,
    Event,
    LoadReport,
    TopicStats,
    TopicTraffic,
)
from state.pulsar.shadow import republish
from state.settings import PulsarSettings
from streaming.simulator.fleet import Moved


@dataclass(slots=True, kw_only=True)
class Part:
    """A bundle as a candidate has it: a recorded one, or a part of one that was cut."""

    name: str
    owner: str
    """Its broker."""
    share: float = 1.0
    """Its part of the recorded bundle's traffic."""
    counts_ratios: Floats = field(default_factory=lambda: np.ones(2))
    """Its part of the recorded bundle's topics and sessions, (2,)."""


@dataclass(slots=True, kw_only=True)
class MovedBundle:
    """A recorded bundle, and where its parts are."""

    parts: list[Part]
    traffic: Floats
    """Its traffic as its recorded broker last reported it, (4,)."""
    counts: Ints
    """Topics and sessions, (2,)."""
    seen_ms: int
    """Time of that report."""


_NO_TOPICS = TopicTraffic(
    bundles=[],
    counts=np.zeros(0, dtype=np.int64),
    topics=[],
    messages_per_s=np.zeros(0),
    bytes_per_s=np.zeros(0),
    sessions=np.zeros(0, dtype=np.int64),
)


def topics_within(traffic: TopicTraffic, bundle: str, part: str) -> TopicTraffic:
    """The topics of a bundle that are in the range of a part of it, as the topics of that part."""
    listed = np.repeat(np.array([name == bundle for name in traffic.bundles], dtype=np.bool_), traffic.counts)
    rows = np.flatnonzero(listed)
    positions = positions_of([traffic.topics[row] for row in rows.tolist()])
    rows = rows[Bundle.parse(part).range.contains_each(positions)]
    return _take(traffic, rows, [part], np.array([len(rows)], dtype=np.int64))


def _take(traffic: TopicTraffic, rows: Ints, bundles: list[str], counts: Ints) -> TopicTraffic:
    """Some topics, listed for these bundles."""
    return TopicTraffic(
        bundles=bundles,
        counts=counts,
        topics=[traffic.topics[row] for row in rows.tolist()],
        messages_per_s=traffic.messages_per_s[rows],
        bytes_per_s=traffic.bytes_per_s[rows],
        sessions=traffic.sessions[rows],
    )


def cut(part: Part, boundaries: list[int], topics: TopicTraffic) -> list[Part]:
    """The children of a part. Raises ``BadRange`` for boundaries that Pulsar would refuse.

    Traffic is divided like the message rates of the topics, sessions like those that are known of, or like the topics; and equally
    if no topic has any.
    """
    bundle = Bundle.parse(part.name)
    ranges = bundle.range.cut(boundaries)
    at = positions_of(topics.topics)
    inside = [each.contains_each(at) for each in ranges]
    shares = _shares([topics.messages_per_s[each].sum() for each in inside])
    numbers = _shares([each.sum() for each in inside])
    sessions = _shares([topics.sessions[each].sum() for each in inside]) if topics.sessions.any() else numbers
    counts_ratios = part.counts_ratios * np.column_stack([numbers, sessions])
    return [
        Part(
            name=str(Bundle(bundle.namespace, range_)),
            owner=part.owner,
            share=part.share * float(share),
            counts_ratios=ratios,
        )
        for range_, share, ratios in zip(ranges, shares, counts_ratios, strict=True)
    ]


def _shares(weights: list[float]) -> Floats:
    total = sum(weights)
    return np.array(weights) / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def parts_at(moved: dict[str, MovedBundle], broker: str) -> Iterator[tuple[MovedBundle, Part]]:
    """Every part that a broker has."""
    for each in moved.values():
        for part in each.parts:
            if part.owner == broker:
                yield each, part


class Row(NamedTuple):
    """A bundle that a report did not list."""

    bundle: str
    traffic: Floats
    """(4,)."""
    counts: Ints
    """Topics and sessions, (2,)."""


def with_rows(
    report: BrokerReport, leaving: Collection[int], arriving: Sequence[Row], costs: Costs, broker: int
) -> BrokerReport:
    """The report without some of its rows and with others; ``broker`` is its row of ``costs``."""
    kept = np.array([row for row in range(len(report.bundles)) if row not in leaving], dtype=np.int64)
    bundles = [report.bundles[row] for row in kept.tolist()] + [each.bundle for each in arriving]
    traffic = np.vstack([report.traffic[kept], *(each.traffic for each in arriving)])
    counts = np.vstack([report.counts[kept], *(each.counts for each in arriving)])
    known = np.concatenate([report.has_traffic[kept], np.ones(len(arriving), dtype=np.bool_)])
    order = sorted(range(len(bundles)), key=bundles.__getitem__)
    change = traffic[len(kept) :].sum(axis=0) - report.traffic[sorted(leaving)].sum(axis=0)
    resources = _resources(report.resources, change, costs, broker)
    published = report.published
    if published is not None:
        gone = {report.bundles[row] for row in leaving}
        change_ratio = _usage_ratio(resources) - _usage_ratio(report.resources)
        volumes = {each.bundle: float(each.traffic[2:].sum()) for each in arriving}
        published = republish(published, gone, volumes, change_ratio, float(change[2:].sum()))
    return replace(
        report,
        resources=resources,
        messages_per_s=max(0.0, report.messages_per_s + float(change[:2].sum())),
        bytes_per_s=max(0.0, report.bytes_per_s + float(change[2:].sum())),
        listed_count=report.listed_count + len(arriving) - len(leaving),
        bundles=[bundles[row] for row in order],
        traffic=traffic[order],
        has_traffic=known[order],
        counts=counts[order],
        published=published,
    )


def _usage_ratio(resources: Floats) -> float:
    """The largest of CPU and bandwidth, whose weights are 1 in what brokers publish; 0 where none is measured."""
    return float(percent(*resources[: BANDWIDTH_OUT + 1].T).max()) / 100.0


def _resources(resources: Floats, change: Floats, costs: Costs, broker: int) -> Floats:
    """What a broker measures after a change of traffic, from 0 to its limits; what was not measured stays so."""
    amounts = costs.amounts_at(np.array([broker]), figures_of(change[None, :]))[0, :REPORTED_COUNT]
    usage, limits = resources.T
    changed = resources.copy()
    changed[:, 0] = np.where(limits > 0, np.clip(usage + amounts, 0.0, np.maximum(usage, limits)), usage)
    return changed


def with_topics(
    traffic: TopicTraffic, leaving: Collection[str], arriving: Sequence[TopicTraffic]
) -> TopicTraffic:
    """Statistics without some bundles and with others."""
    is_kept = np.array([name not in leaving for name in traffic.bundles], dtype=np.bool_)
    kept = _take(
        traffic,
        np.flatnonzero(np.repeat(is_kept, traffic.counts)),
        [name for name in traffic.bundles if name not in leaving],
        traffic.counts[is_kept],
    )
    told = [kept, *arriving]
    return TopicTraffic(
        bundles=[name for each in told for name in each.bundles],
        counts=np.concatenate([each.counts for each in told]),
        topics=[name for each in told for name in each.topics],
        messages_per_s=np.concatenate([each.messages_per_s for each in told]),
        bytes_per_s=np.concatenate([each.bytes_per_s for each in told]),
        sessions=np.concatenate([each.sessions for each in told]),
    )


class World:
    """Takes the recorded events in their order, and gives what a candidate sees of them."""

    def __init__(
        self,
        brokers: tuple[str, ...],
        costs: Costs,
        judge: PulsarSettings,
        *,
        begins_ms: int,
        keeps_recorded_moves: bool,
    ) -> None:
        """``costs`` of the brokers, which are ascending; ``judge``: settings that decide how loaded a broker is.

        Without recorded moves a bundle stays where it was first seen.
        """
        self.brokers = brokers
        self.now_ms = 0
        self._costs, self._judge, self._begins_ms = costs, judge, begins_ms
        self._gone_ms = round(1000 * judge.rounds.max_report_age_s)
        """A broker or a moved bundle without a report for this long is not there."""
        self._keeps_recorded_moves = keeps_recorded_moves
        self._row_of = {name: row for row, name in enumerate(brokers)}
        self._recorded: dict[str, LoadReport] = {}
        self._listed: dict[str, set[str]] = {}
        self._owner: dict[str, str] = {}
        self._shown: dict[str, LoadReport] = {}
        self._placed: dict[str, float] = {}
        """Message rate of the bundles that were sent to a broker since its last report."""
        self._topics: dict[str, TopicStats] = {}
        self._moved: dict[str, MovedBundle] = {}
        self._whole_of: dict[str, str] = {}
        """Recorded bundle of each part."""

    @property
    def alive(self) -> Bools:
        """Brokers that have reported lately, (n,)."""
        return np.array([self._is_alive(name) for name in self.brokers], dtype=np.bool_)

    def messages_per_s(self) -> float:
        """Message rate of the fleet, in + out."""
        return sum(self._shown[name].report.messages_per_s for name in self.brokers if self._is_alive(name))

    def structural_points(self) -> Floats:
        """Usage of each broker by its last report, (n,); NaN for one that is not there. The noise of the figures is in it."""
        found = np.full(len(self.brokers), np.nan)
        names = tuple(name for name in self.brokers if self._is_alive(name))
        if not names:
            return found
        reports = [self._shown[name].report for name in names]
        resources = np.array([each.resources for each in reports])
        carried = [(each.messages_per_s, each.bytes_per_s, *each.counts.sum(axis=0)) for each in reports]
        limits = np.column_stack([resources[:, :, 1], self._judge.capacity.limits(names)])
        percents = percent(np.column_stack([resources[:, :, 0], carried]), limits)
        ratio = weighted_maximum_ratio(percents, self._judge.usage.weights())
        found[[self._row_of[name] for name in names]] = 100.0 * ratio
        return found

    def take(self, event: Event) -> Event | None:
        """What a candidate sees of a recorded event; None for a control event or an action result, which are about other decisions."""
        self.now_ms = max(self.now_ms, event.time_ms)
        if isinstance(event, Control | ActionResult):
            return None
        if isinstance(event, LoadReport) and event.broker in self._row_of:
            return self._load_report(event)
        if isinstance(event, TopicStats):
            self._topics[event.broker] = event
            return self._topic_stats(event) if self._moved else event
        return event

    def unload(self, bundle: str, destination: str | None) -> Moved:
        """Move a bundle at once; it fails if the bundle or its destination is not there."""
        time_s = (self.now_ms - self._begins_ms) / 1000
        part = self._part(bundle)
        target = self._place() if destination is None else destination
        if part is None or target is None or not self._is_alive(target):
            return Moved(bundle=bundle, succeeded=False, time_s=time_s)
        source, whole = part.owner, self._moved[self._whole_of[bundle]]
        part.owner = target
        messages_per_s = part.share * float(whole.traffic[:2].sum())
        self._placed[target] = self._placed.get(target, 0.0) + messages_per_s
        self._follow_what_is_back(self._whole_of[bundle])
        return Moved(
            bundle=bundle,
            succeeded=True,
            time_s=time_s,
            source=self._row_of[source],
            destination=self._row_of[target],
            messages_per_s=messages_per_s,
        )

    def split(self, bundle: str, boundaries: list[int]) -> bool:
        """Cut a bundle at once; False where it is not there, or cannot be cut there."""
        part = self._part(bundle)
        if part is None:
            return False
        name = self._whole_of[bundle]
        try:
            children = cut(part, boundaries, self._topics_of(name, bundle))
        except BadRange:
            return False
        whole = self._moved[name]
        whole.parts = [each for each in whole.parts if each is not part] + children
        del self._whole_of[bundle]
        self._whole_of.update({child.name: name for child in children})
        return True

    def end_round(self) -> None:
        """Bundles of a broker that is gone go where the recording has them; a bundle that is gone is forgotten."""
        for name, each in list(self._moved.items()):
            if self.now_ms - each.seen_ms > self._gone_ms:
                self._forget(name)
                continue
            for part in each.parts:
                if not self._is_alive(part.owner):
                    part.owner = self._owner[name]
            self._follow_what_is_back(name)

    def _is_alive(self, broker: str) -> bool:
        shown = self._shown.get(broker)
        return shown is not None and self.now_ms - shown.time_ms <= self._gone_ms

    def _part(self, bundle: str) -> Part | None:
        """The part of that name; a recorded bundle becomes a part. None if it is not there."""
        whole = self._whole_of.get(bundle)
        if whole is None and not self._take_over(bundle):
            return None
        parts = self._moved[self._whole_of[bundle]].parts
        return next(part for part in parts if part.name == bundle)

    def _take_over(self, bundle: str) -> bool:
        """Place a recorded bundle apart from the recording; False if it is not there or is placed already."""
        owner = self._owner.get(bundle)
        report = None if owner is None else self._recorded[owner]
        row = None if report is None else _row(report, bundle)
        if owner is None or report is None or row is None or bundle in self._moved:
            return False
        self._moved[bundle] = MovedBundle(
            parts=[Part(name=bundle, owner=owner)],
            traffic=report.report.traffic[row],
            counts=report.report.counts[row],
            seen_ms=report.time_ms,
        )
        self._whole_of[bundle] = bundle
        return True

    def _forget(self, name: str) -> None:
        for part in self._moved.pop(name).parts:
            del self._whole_of[part.name]

    def _follow_what_is_back(self, name: str) -> None:
        """A whole bundle that is back at its recorded broker follows the recording again, unless recorded moves do not count."""
        parts = self._moved[name].parts
        is_whole = len(parts) == 1 and parts[0].name == name
        if self._keeps_recorded_moves and is_whole and parts[0].owner == self._owner[name]:
            self._forget(name)

    def _place(self) -> str | None:
        """The broker with the lowest message rate, as Pulsar chooses; bundles that were sent there since its report count."""
        rates = {
            name: self._shown[name].report.messages_per_s + self._placed.get(name, 0.0)
            for name in self.brokers
            if self._is_alive(name)
        }
        return min(rates, key=lambda name: (rates[name], name)) if rates else None

    def _load_report(self, event: LoadReport) -> LoadReport:
        before = self._recorded.get(event.broker)
        if before is not None and event.time_ms < before.time_ms:
            return event  # late: it says nothing new, and a candidate's rounds will not use it
        is_changed = before is None or before.report.bundles != event.report.bundles
        if is_changed and not self._keeps_recorded_moves:
            self._hold_what_leaves(event)
        self._recorded[event.broker] = event
        if is_changed:
            self._note_owners(event)
        shown = self._rewrite_report(event) if self._moved else event
        self._shown[event.broker] = shown
        self._placed.pop(event.broker, None)
        return shown

    def _note_owners(self, event: LoadReport) -> None:
        """A bundle belongs to the broker that began last to list it."""
        listed = set(event.report.bundles)
        for bundle in sorted(listed - self._listed.get(event.broker, set())):
            if not self._keeps_recorded_moves and self._owner.get(bundle) not in {None, event.broker}:
                self._take_over(bundle)
            self._owner[bundle] = event.broker
        self._listed[event.broker] = listed

    def _hold_what_leaves(self, event: LoadReport) -> None:
        """Without recorded moves, a bundle that a broker stops listing stays there; the broker's last report still has its figures."""
        for bundle in sorted(self._listed.get(event.broker, set()) - set(event.report.bundles)):
            if self._owner[bundle] == event.broker:
                self._take_over(bundle)

    def _rewrite_report(self, event: LoadReport) -> LoadReport:
        broker, report = event.broker, event.report
        leaving = set()
        for name, each in self._moved.items():
            row = _row(event, name)
            if row is None:
                continue
            leaving.add(row)
            if self._owner[name] == broker:
                each.traffic, each.counts, each.seen_ms = (
                    report.traffic[row],
                    report.counts[row],
                    event.time_ms,
                )
        arriving = [
            Row(
                part.name,
                part.share * each.traffic,
                np.rint(part.counts_ratios * each.counts).astype(np.int64),
            )
            for each, part in parts_at(self._moved, broker)
            if self.now_ms - each.seen_ms <= self._gone_ms
        ]
        if not leaving and not arriving:
            return event
        return msgspec.structs.replace(
            event, report=with_rows(report, leaving, arriving, self._costs, self._row_of[broker])
        )

    def _topic_stats(self, event: TopicStats) -> TopicStats:
        arriving = [
            self._topics_of(self._whole_of[part.name], part.name)
            for _, part in parts_at(self._moved, event.broker)
        ]
        if not arriving and not self._moved.keys() & set(event.traffic.bundles):
            return event
        return msgspec.structs.replace(
            event, traffic=with_topics(event.traffic, self._moved.keys(), arriving)
        )

    def _topics_of(self, bundle: str, part: str) -> TopicTraffic:
        """Last statistics of the topics of a part of a recorded bundle."""
        stats = self._topics.get(self._owner[bundle])
        return topics_within(_NO_TOPICS if stats is None else stats.traffic, bundle, part)


def _row(event: LoadReport, bundle: str) -> int | None:
    bundles = event.report.bundles
    place = bisect_left(bundles, bundle)
    return place if place < len(bundles) and bundles[place] == bundle else None
