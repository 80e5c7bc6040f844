"""The unloads that empty drained brokers, and what the summary says about maintenance and drains.

An operator drains a broker to take it away. All of its bundles leave, whatever the load is. They are not held by a cooldown, nor
by the guards for the sole bundle, trimtab's own topics, the least benefit, the calm after a change and unsettled brokers. They
are held by a pause and the other holds of the round, an action in flight, an action without effect, a namespace that is excluded
or under maintenance, anti-affinity, and the budgets; drains have an hourly budget of their own.

A bundle goes to the least used broker of its namespace's group that takes part in balancing; the heaviest bundle goes first. It
counts for its share of the drained broker's usage, by messages or bytes, whichever is more, and for no less than an equal share,
so that idle bundles do not all go to one broker.

Source: ours; Pulsar unloads everything of a broker at once when it stops.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

import numpy as np

from policies.columns import Floats, Ints
from policies.shedding.rules import Rules
from state.closing import GeneralReason
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, namespace_of
from state.memory import DrainRecord, Header
from state.outputs import DrainRow, Finding, LeftRow, Section, SpellRow, Unload, UpkeepSummary, rfc3339
from state.pulsar import masks
from state.pulsar.fleet import Advanced
from state.pulsar.holds import Circumstances, Refusal, hold_leaving, share_ratio
from state.pulsar.memory import WaitingReport
from state.pulsar.shedding import After, traffic_of
from state.pulsar.view import Eligible, Loads, mean_points
from state.settings import PulsarSettings
from state.summary import MAX_REMARK_CHARACTERS, SHOWN_ROWS, empty_section
from state.upkeep import Spell, Upkeep

POLICY = "drain"

OUTCOMES = (
    "acted",
    "in-flight",
    "excluded-namespace",
    "maintenance",
    "ineffective",
    "cooldown",
    "absent",
    "overlapping",
    "dry-run",
    "anti-affinity",
    "no-destination",
    "budget",
    *get_args(GeneralReason),
)
"""Every outcome of a bundle at a drained broker."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a round does to empty its drained brokers."""

    unloads: list[Unload] = field(default_factory=list)
    left: list[LeftRow] = field(default_factory=list)
    """Every bundle of the drained brokers, the heaviest of each broker first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """A bundle that came to a broker while it was drained."""

    bundle: str
    broker: str


def begin(header: Header, advanced: Advanced, upkeep: Upkeep) -> list[PutBack]:
    """Remember drains as they begin and forget those that ended; returns the bundles that were put back at drained brokers."""
    header.drains = {name: each for name, each in header.drains.items() if name in upkeep.drains}
    found = []
    for broker in sorted(upkeep.drains):
        rows = advanced.rows_of(broker)
        if rows is None:
            continue
        known = header.drains.get(broker)
        if known is None:
            place = advanced.fleet.brokers.index(broker)
            report_ms = int(advanced.fleet.broker_last_ms[place])
            header.drains[broker] = DrainRecord(report_ms, len(rows))
            continue
        begun_ms = advanced.runs_begun_ms(broker)
        found += [
            PutBack(bundle=advanced.fleet.bundles[row], broker=broker)
            for row in rows
            if begun_ms[row] > known.report_ms
        ]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """What a drain looks at; ``loads`` has all brokers, the view of ``table`` those that take part in balancing."""

    table: Eligible
    advanced: Advanced
    loads: Loads
    header: Header
    pulsar: PulsarSettings
    upkeep: Upkeep


def decide(scene: Scene, rules: Rules, circumstances: Circumstances, after: After) -> Drained:
    """Move bundles off drained brokers, as far as they may leave; ``rules`` and ``after`` count what moves."""
    if not scene.upkeep.drains:
        return Drained()
    desk = _Desk(scene, rules, circumstances, after)
    for broker, spell in scene.upkeep.drains.items():
        rows = scene.advanced.rows_of(broker)
        if rows is not None:
            desk.empty(_Source.of(scene, broker, spell, rows, first_row=rules.first_row_of(broker)))
    return desk.drained


class _Leaving(NamedTuple):
    """A bundle of a drained broker: its rows of the fleet and of the rules, and its average rates in + out."""

    row: int
    rules_row: int
    bundle: str
    messages_per_s: float
    bytes_per_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Source:
    """A drained broker: its bundles by row of the fleet, and its traffic as they leave."""

    broker: str
    spell: Spell
    rows: Ints
    first_row: int
    """Row of the rules of its first bundle."""
    messages_per_s: Floats
    """Average message rate in + out of each bundle, (rows,)."""
    bytes_per_s: Floats
    usage_ratio: float
    broker_messages_per_s: float
    broker_bytes_per_s: float
    left_messages_per_s: float
    left_bytes_per_s: float
    left_count: int

    @staticmethod
    def of(scene: Scene, broker: str, spell: Spell, rows: range, *, first_row: int) -> "_Source":
        fleet = scene.advanced.fleet
        averages = fleet.averages[rows.start : rows.stop]
        traffic = scene.loads.traffic_of(broker)
        return _Source(
            broker=broker,
            spell=spell,
            rows=np.arange(rows.start, rows.stop),
            first_row=first_row,
            messages_per_s=averages[:, RATE_IN] + averages[:, RATE_OUT],
            bytes_per_s=averages[:, THROUGHPUT_IN] + averages[:, THROUGHPUT_OUT],
            usage_ratio=scene.loads.points_of(broker) / 100.0,
            broker_messages_per_s=traffic.messages_per_s,
            broker_bytes_per_s=traffic.bytes_per_s,
            left_messages_per_s=traffic.messages_per_s,
            left_bytes_per_s=traffic.bytes_per_s,
            left_count=len(rows),
        )

    def heaviest_first(self, bundles: Sequence[str]) -> Iterator[_Leaving]:
        """Its bundles, ties by name; ``bundles`` are the fleet's."""
        for at in np.lexsort((self.rows, -self.bytes_per_s, -self.messages_per_s)).tolist():
            row = int(self.rows[at])
            rates = float(self.messages_per_s[at]), float(self.bytes_per_s[at])
            yield _Leaving(row, self.first_row + at, bundles[row], *rates)

    def usage_ratio_of(self, leaving: _Leaving) -> float:
        """Usage that a bundle takes along."""
        parts = (
            share_ratio(leaving.messages_per_s, self.broker_messages_per_s),
            share_ratio(leaving.bytes_per_s, self.broker_bytes_per_s),
        )
        return self.usage_ratio * max(*parts, 1.0 / len(self.rows))

    def give(self, leaving: _Leaving) -> dict[str, float]:
        """Take a bundle off; returns the broker's load after that."""
        self.left_messages_per_s = max(0.0, self.left_messages_per_s - leaving.messages_per_s)
        self.left_bytes_per_s = max(0.0, self.left_bytes_per_s - leaving.bytes_per_s)
        self.left_count -= 1
        return traffic_of(self.left_messages_per_s, self.left_bytes_per_s)


class _Places:
    """Where bundles of drained brokers may go, the least used first."""

    def __init__(self, table: Eligible) -> None:
        self._table = table
        brokers = table.view.brokers
        self.usage_ratio: Floats = brokers.usage_ratio.copy()
        self._unmeasured = ~brokers.is_measured

    def of(self, namespace: str) -> list[int]:
        """Broker rows of a namespace's group; a broker that measures nothing does not count as idle, and comes last."""
        table = self._table
        group = int(table.groups.of_namespaces([namespace])[0])
        rows = np.flatnonzero(table.broker_groups == group)
        order = np.lexsort((rows, self.usage_ratio[rows], self._unmeasured[rows]))
        found: list[int] = rows[order].tolist()
        return found


class _Desk:
    """Decides on the bundles of the drained brokers, one after the other."""

    def __init__(self, scene: Scene, rules: Rules, circumstances: Circumstances, after: After) -> None:
        self._scene, self._circumstances = scene, circumstances
        self._rules, self._after = rules, after
        self._codes = masks.drain_mask(
            scene.advanced,
            scene.header,
            scene.pulsar,
            end_ms=circumstances.end_ms,
            resting=scene.upkeep.namespaces,
        )
        self._shown = _shown_already(scene, circumstances)
        self._places = _Places(scene.table)
        self.drained = Drained()

    def empty(self, source: _Source) -> None:
        """Decide on all bundles of a broker."""
        for leaving in source.heaviest_first(self._scene.advanced.fleet.bundles):
            place = self._place_of(leaving)
            outcome, detail = ("acted", "acted") if isinstance(place, int) else place
            self.drained.left.append(
                LeftRow(
                    bundle=leaving.bundle,
                    broker=source.broker,
                    outcome=outcome,
                    detail=detail,
                    messages_per_s=leaving.messages_per_s,
                    bytes_per_s=leaving.bytes_per_s,
                )
            )
            if isinstance(place, int):
                self._let_go(source, leaving, place)

    def _place_of(self, leaving: _Leaving) -> int | Refusal:
        """The broker row that a bundle goes to, or why it stays for now."""
        code = int(self._codes[leaving.row])
        if code != masks.OPEN:
            return masks.MASK_REASONS[code], masks.MASK_REASONS[code]
        if leaving.bundle in self._shown:
            return self._shown[leaving.bundle]
        hold = hold_leaving(leaving.rules_row, self._circumstances, self._rules)
        if hold is not None:
            return hold.reason, hold.detail
        return self._choose(leaving)

    def _choose(self, leaving: _Leaving) -> int | Refusal:
        namespace, first = namespace_of(leaving.bundle), None
        for broker in self._places.of(namespace):
            barred = self._rules.bars(leaving.rules_row, broker)
            if barred is None:
                return broker
            first = first or barred
        return first or (
            "no-destination",
            f"no broker of the isolation group of {namespace} takes part in balancing",
        )

    def _let_go(self, source: _Source, leaving: _Leaving, place: int) -> None:
        usage_points = 100.0 * float(self._places.usage_ratio[place])
        self._rules.take(leaving.rules_row, place)
        self._places.usage_ratio[place] += source.usage_ratio_of(leaving)
        expected = {
            "source": source.give(leaving),
            "destination": self._after.receive(place, leaving.messages_per_s, leaving.bytes_per_s),
        }
        self.drained.unloads.append(
            _unload(self._scene, source, self._circumstances, expected, leaving, place, usage_points)
        )


def _shown_already(scene: Scene, circumstances: Circumstances) -> dict[str, Refusal]:
    """By name, bundles whose unload a dry-run has already shown: they do not really leave, and are not shown again soon."""
    if not circumstances.dry_run:
        return {}
    cooling = scene.header.ledger.resting("unload", scene.pulsar, end_ms=circumstances.end_ms).cooling
    found = dict.fromkeys(cooling, ("cooldown", "cooldown: the dry-run has shown it"))
    shadow = scene.advanced.fleet.shadow
    return found | {
        bundle: ("dry-run", f"the dry-run has moved it to {there}") for bundle, (_, there) in shadow.items()
    }


def _unload(
    scene: Scene,
    source: _Source,
    circumstances: Circumstances,
    expected: dict[str, dict[str, float]],
    leaving: _Leaving,
    destination: int,
    usage_points: float,
) -> Unload:
    table, spell = scene.table, source.spell
    target = table.view.brokers.names[destination]
    compared = table.broker_groups == table.broker_groups[destination]
    _, _, bundle, messages, volume = leaving
    return Unload(
        cluster=circumstances.cluster,
        round=circumstances.number,
        policy=POLICY,
        trigger=POLICY,
        reason=f"{source.broker} is drained by {spell.who or 'somebody'} ({spell.why or 'no reason given'}): moving {bundle} "
        f"({messages:.0f} messages/s, {volume:.0f} bytes/s) to {target}, at {usage_points:.1f} %; it has {source.left_count} "
        "bundles after that",
        evidence={
            "bundle_messages_per_s": messages,
            "bundle_bytes_per_s": volume,
            "bundles_left_count": source.left_count,
            "brokers_count": int(compared.sum()),
            "mean_usage_points": mean_points(100.0 * table.view.brokers.usage_ratio[compared]),
            "destination_usage_points": usage_points,
        },
        expected=expected,
        precondition={"owner": source.broker, "range": bundle.rpartition("/")[2]},
        expires_at=rfc3339(circumstances.expires_ms),
        dry_run=circumstances.dry_run,
        bundle=bundle,
        source_broker=source.broker,
        destination_broker=target,
    )


def section(
    upkeep: Upkeep,
    drained: Drained | None,
    advanced: Advanced,
    begun: Mapping[str, DrainRecord],
    reports: Mapping[str, WaitingReport],
) -> UpkeepSummary | None:
    """The section of a round; None where nothing is taken out of balancing. ``drained`` is None where nothing was decided."""
    if not upkeep:
        return None
    return UpkeepSummary(
        brokers=_spells(upkeep.brokers),
        namespaces=_spells(upkeep.namespaces),
        drains=[
            _drain_row(name, each, advanced, begun.get(name), reports.get(name))
            for name, each in _first(upkeep.drains)
        ],
        left=empty_section() if drained is None else _left(drained),
    )


def _first(spells: Mapping[str, Spell]) -> Sequence[tuple[str, Spell]]:
    return list(spells.items())[:SHOWN_ROWS]


def _spells(spells: Mapping[str, Spell]) -> list[SpellRow]:
    return [
        SpellRow(
            name=name,
            since=rfc3339(each.since_ms),
            until=None if each.until_ms is None else rfc3339(each.until_ms),
            who=each.who[:MAX_REMARK_CHARACTERS],
            why=each.why[:MAX_REMARK_CHARACTERS],
        )
        for name, each in _first(spells)
    ]


def _drain_row(
    name: str, spell: Spell, advanced: Advanced, begun: DrainRecord | None, report: WaitingReport | None
) -> DrainRow:
    rows = advanced.rows_of(name)
    left = None if rows is None else len(rows)
    own = [] if report is None else report.report.cluster_bundles
    return DrainRow(
        name=name,
        since=rfc3339(spell.since_ms),
        until=None if spell.until_ms is None else rfc3339(spell.until_ms),
        who=spell.who[:MAX_REMARK_CHARACTERS],
        why=spell.why[:MAX_REMARK_CHARACTERS],
        state="silent" if left is None else "draining" if left else "only-pulsars-own" if own else "empty",
        bundles_at_start_count=None if begun is None else begun.bundles_count,
        bundles_left_count=left,
        pulsars_own_count=None if report is None else len(own),
        pulsars_own=own[:SHOWN_ROWS],
    )


def _left(drained: Drained) -> Section[LeftRow]:
    """Bundles at drained brokers; those that stay are named before those that leave."""
    order = sorted(drained.left, key=lambda each: each.outcome == "acted")
    outcomes = Counter(each.outcome for each in drained.left)
    return Section(
        count=len(drained.left), outcomes=dict(sorted(outcomes.items())), heaviest=order[:SHOWN_ROWS]
    )


def find_put_back(found: Sequence[PutBack]) -> list[Finding]:
    """Bundles that Pulsar placed at a drained broker again, while they are there."""
    return [
        Finding(
            kind="put-back",
            subject=each.bundle,
            broker=each.broker,
            bytes_per_s=None,
            advice="it came to the broker after its drain began, because Pulsar placed it there or somebody moved it: it is "
            "moved off again in the next rounds",
        )
        for each in found
    ]


def missing_brokers(live: Sequence[str], reporting: Collection[str], upkeep: Upkeep) -> list[str]:
    """Live brokers, less those that are under maintenance or drained and silent: these do not count as missing."""
    apart = upkeep.apart
    return [name for name in live if name not in apart or name in reporting]
