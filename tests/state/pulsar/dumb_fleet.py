"""Ownership and averages computed with dicts, a bundle at a time, straight from the design; slow and obvious.

``state.pulsar.fleet.advance`` does the same in columns, and the two are compared on random traces.
"""

from dataclasses import dataclass, field

from state.events import LoadReport


@dataclass
class Bundle:
    """What is known of one bundle."""

    owner: str | None
    last_ms: int
    samples: int = 0
    average: list[float] = field(default_factory=lambda: [0.0] * 4)
    is_skip_owed: bool = False
    former: str | None = None


@dataclass
class DumbFleet:
    """Brokers, with the time from which each one lists its bundles, and the bundles."""

    max_age_ms: int
    average_samples: int
    skips: bool
    last_ms: dict[str, int] = field(default_factory=dict)
    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    """Bundles of the last snapshot, by owner and name."""
    unloads: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """By bundle that was unloaded and is not seen elsewhere yet, its source and destination."""

    def advance(self, reports: dict[str, LoadReport], *, end_ms: int) -> None:
        """One closed round."""
        self._forget_absent(reports, end_ms)
        for broker, waiting in reports.items():
            self._list(broker, waiting)
        listers: dict[str, list[str]] = {}
        for broker, waiting in reports.items():
            for name in waiting.report.bundles:
                listers.setdefault(name, []).append(broker)
        for name, brokers in listers.items():
            owner = max(brokers, key=lambda broker: self._claim(name, broker, reports[broker]))
            self._own(name, owner, reports[owner])
            self.bundles[name].last_ms = max(reports[broker].time_ms for broker in brokers)
        self.bundles = {
            name: bundle
            for name, bundle in self.bundles.items()
            if name in listers or end_ms - bundle.last_ms <= self.max_age_ms
        }
        self.listed = sorted(listers, key=lambda name: (self.bundles[name].owner or "", name))
        for name, (source, _) in list(self.unloads.items()):
            if name in listers and self.bundles[name].owner != source:
                del self.unloads[name]

    def _forget_absent(self, reports: dict[str, LoadReport], end_ms: int) -> None:
        for broker in list(self.last_ms):
            if broker not in reports and end_ms - self.last_ms[broker] > self.max_age_ms:
                del self.last_ms[broker], self.runs[broker]
                for bundle in self.bundles.values():
                    bundle.owner = None if bundle.owner == broker else bundle.owner
                    bundle.former = None if bundle.former == broker else bundle.former

    def _list(self, broker: str, waiting: LoadReport) -> None:
        before = self.runs.get(broker, {})
        if waiting.time_ms - self.last_ms.get(broker, waiting.time_ms) > self.max_age_ms:
            before = {}
        self.runs[broker] = {name: before.get(name, waiting.time_ms) for name in waiting.report.bundles}
        self.last_ms[broker] = waiting.time_ms

    def _claim(self, name: str, broker: str, waiting: LoadReport) -> tuple[bool, int, bool, int, str]:
        """What speaks for a broker to own a bundle that it lists, the weightiest first."""
        known, begun_ms = self.bundles.get(name), self.runs[broker][name]
        row = waiting.report.bundles.index(name)
        is_owner = known is not None and known.owner == broker
        has_traffic = bool(waiting.report.traffic[row].any())
        if is_owner and not waiting.report.has_traffic[row]:
            has_traffic = any(self.bundles[name].average)
        carries = 2 if has_traffic else int(waiting.report.counts[row].any())
        is_former = known is not None and known.former == broker
        is_settled = is_owner or (begun_ms < waiting.time_ms and not is_former and carries > 0)
        is_awaited = begun_ms == waiting.time_ms and self.unloads.get(name, ("", None))[1] == broker
        return (is_awaited, carries, is_settled, begun_ms, broker)

    def _own(self, name: str, owner: str, waiting: LoadReport) -> None:
        bundle = self.bundles.get(name)
        former = None if bundle is None else bundle.former
        if bundle is not None and bundle.owner != owner:
            has_just_begun = self.runs[owner][name] > bundle.last_ms - self.max_age_ms
            former = bundle.owner if has_just_begun else None
        if bundle is None or waiting.time_ms - bundle.last_ms > self.max_age_ms:
            bundle = Bundle(owner=owner, last_ms=waiting.time_ms)
        bundle.former = former
        row = waiting.report.bundles.index(name)
        is_skip_owed = self.skips and (bundle.is_skip_owed or bundle.owner != owner)
        if waiting.report.has_traffic[row]:
            if not is_skip_owed:
                self._sample(bundle, waiting.report.traffic[row].tolist())
            is_skip_owed = False
        bundle.owner, bundle.is_skip_owed = owner, is_skip_owed
        self.bundles[name] = bundle

    def _sample(self, bundle: Bundle, traffic: list[float]) -> None:
        bundle.samples = n = min(bundle.samples + 1, self.average_samples)
        bundle.average = [
            ((n - 1) * average + x) / n for average, x in zip(bundle.average, traffic, strict=True)
        ]
