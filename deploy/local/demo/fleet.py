"""A simulated Pulsar cluster: brokers with bundles under traffic, which reports its load and follows the actions.

Pure: the caller brings the clock and carries the messages. The same seed and the same calls give the same numbers.

Invariants: every bundle has one owner; a bundle that moves is listed by both brokers in exactly one sweep, as real
brokers do, and its traffic is then divided between them; the children of a split bundle are on its broker from the
next sweep on; the CPU follows the traffic, so usage tells brokers apart.

What it does not do: broker failures, clients that need time to reconnect.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from deploy.local.demo.bundles import Bundle, first_bundles
from policies.splitting.ranges import BadRange
from state.outputs import Split, Unload, rfc3339
from streaming.contract.messages import (
    BundleStats,
    LocalBrokerData,
    Resource,
    TopicLoad,
    Traffic,
)

CLUSTER = "demo"
SEED = 7

BROKERS = tuple(f"broker-{number}:8080" for number in range(1, 7))
START_POINTS = (93.0, 34.0, 76.0, 46.0, 5.0, 28.0)
"""CPU of each broker at the start, in percent: two hot, one nearly empty."""

CORES_COUNT = 4
CAPACITY_MESSAGES_PER_S = 40_000.0
"""Messages in and out at which all cores of a broker are busy."""
BANDWIDTH_LIMIT_KBIT_PER_S = 10_000_000.0
NOISE_RATIO = 0.03
"""Standard deviation of a bundle's rate from one sweep to the next."""
DRIFT_RATIO = 0.06
"""How far a bundle's rate swings slowly around its mean; too little to unbalance the fleet by itself."""
CPU_NOISE_POINTS = 0.4

_BITS_PER_KBIT = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNow:
    """One broker in a sweep."""

    broker: str
    usage_points: float
    """CPU, 100 = all cores busy."""
    messages_per_s: float
    bundles_count: int
    report: LocalBrokerData
    topics: dict[str, dict[str, TopicLoad]]
    """Traffic by bundle and topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of an action."""

    action_id: str
    outcome: Literal["succeeded", "failed", "skipped"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One round of reports, and the moves and splits it found finished."""

    time_ms: int
    bundles_count: int
    """Bundles of the whole fleet without heartbeat bundles; one that moves counts once."""
    brokers: tuple[BrokerNow, ...]
    finished: tuple[Result, ...]


@dataclass(slots=True, kw_only=True)
class _Move:
    action_id: str
    bundle: str
    source: str
    destination: str
    listed_twice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    action_id: str
    children: tuple[Bundle, ...]


@dataclass(slots=True)
class Fleet:
    """Brokers, bundles and the actions under way; `seed` fixes sizes, first owners and noise."""

    seed: int = SEED
    _random: np.random.Generator = field(init=False, repr=False)
    _bundles: dict[str, Bundle] = field(init=False, repr=False)
    _owners: dict[str, str] = field(init=False, repr=False)
    _moves: dict[str, _Move] = field(init=False, repr=False, default_factory=dict)
    _cuts: dict[str, _Cut] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        total = CAPACITY_MESSAGES_PER_S * sum(START_POINTS) / 100.0
        bundles = first_bundles(self._random, seed=self.seed, total_messages_per_s=total)
        self._bundles = {bundle.name: bundle for bundle in bundles}
        self._owners = _first_owners(self._bundles)

    def owner(self, bundle: str) -> str | None:
        """Broker that owns a bundle; None for a bundle that does not exist."""
        return self._owners.get(bundle)

    def follow(self, action_id: str, action: Unload | Split, *, now_ms: int) -> Result | None:
        """Take an action, which begins with the next sweep; returns a result only if it cannot be carried out."""
        why_not = self._why_not(action, now_ms)
        if why_not is None:
            if isinstance(action, Split):
                why_not = self._split(action_id, action)
            else:
                why_not = self._move(action_id, action)
        return None if why_not is None else Result(action_id=action_id, outcome="skipped", reason=why_not)

    def sweep(self, now_ms: int) -> Sweep:
        """Let moves go on by one step, carry splits out, and report every broker's load at ``now_ms``."""
        finished = [self._finish(move) for move in list(self._moves.values()) if move.listed_twice]
        finished += [self._divide(name, cut) for name, cut in self._cuts.items()]
        self._cuts.clear()
        for move in self._moves.values():
            move.listed_twice = True
            self._owners[move.bundle] = move.destination
        listed: dict[str, dict[str, float]] = {broker: {} for broker in BROKERS}
        for name, bundle in self._bundles.items():
            factor = self._factor(bundle, now_ms)
            move_now = self._moves.get(name)
            if move_now is None:
                listed[self._owners[name]][name] = factor
                continue
            for broker in (move_now.source, move_now.destination):
                listed[broker][name] = factor / 2
        return Sweep(
            time_ms=now_ms,
            bundles_count=len(self._bundles),
            brokers=tuple(self._broker_now(broker, listed[broker]) for broker in BROKERS),
            finished=tuple(finished),
        )

    def _why_not(self, action: Unload | Split, now_ms: int) -> str | None:
        bundle = action.bundle
        owner = self._owners.get(bundle)
        if owner is None:
            return f"there is no bundle {bundle}"
        if action.expires_at <= rfc3339(now_ms):
            return f"it expired at {action.expires_at}"
        if bundle in self._moves or bundle in self._cuts:
            return f"{bundle} is {'moving' if bundle in self._moves else 'being split'} already"
        if owner != action.precondition["owner"]:
            return f"{bundle} belongs to {owner}, not to {action.precondition['owner']}"
        if not bundle.endswith(f"/{action.precondition['range']}"):
            return f"{bundle} has another range than {action.precondition['range']}"
        return None

    def _move(self, action_id: str, unload: Unload) -> str | None:
        """Take an unload, or say why not."""
        destination = unload.destination_broker
        if destination is not None and destination not in BROKERS:
            return f"there is no broker {destination}"
        self._moves[unload.bundle] = _Move(
            action_id=action_id,
            bundle=unload.bundle,
            source=unload.source_broker,
            destination=destination or self._find_idlest(),
        )
        return None

    def _split(self, action_id: str, split: Split) -> str | None:
        """Take a split, or say why not."""
        try:
            children = self._bundles[split.bundle].cut(split.boundaries)
        except BadRange as error:
            return str(error)
        self._cuts[split.bundle] = _Cut(action_id=action_id, children=children)
        return None

    def _find_idlest(self) -> str:
        """Where Pulsar's own placement puts a bundle without a destination: on the least loaded broker."""
        loads = dict.fromkeys(BROKERS, 0.0)
        for name, owner in self._owners.items():
            loads[self._moves[name].destination if name in self._moves else owner] += self._bundles[
                name
            ].messages_per_s
        return min(BROKERS, key=lambda broker: loads[broker])

    def _finish(self, move: _Move) -> Result:
        del self._moves[move.bundle]
        return Result(
            action_id=move.action_id,
            outcome="succeeded",
            reason=f"{move.bundle} is now served by {move.destination}",
        )

    def _divide(self, name: str, cut: _Cut) -> Result:
        del self._bundles[name]
        owner = self._owners.pop(name)
        for child in cut.children:
            self._bundles[child.name] = child
            self._owners[child.name] = owner
        return Result(
            action_id=cut.action_id,
            outcome="succeeded",
            reason=f"{name} is now {len(cut.children)} bundles of {owner}",
        )

    def _factor(self, bundle: Bundle, now_ms: int) -> float:
        """A bundle's traffic now, as a multiple of its mean."""
        angle = 2 * math.pi * (now_ms / 1000 / bundle.drift_period_s + bundle.drift_phase)
        noise = float(self._random.normal(0.0, NOISE_RATIO))
        return max(0.0, 1.0 + DRIFT_RATIO * math.sin(angle) + noise)

    def _broker_now(self, broker: str, factors: dict[str, float]) -> BrokerNow:
        """The load of a broker that lists these bundles, each at this multiple of its mean traffic."""
        listed = {name: self._bundles[name].stats(factor) for name, factor in factors.items()}
        rate_in, rate_out, volume_in, volume_out = _sums(listed.values())
        messages_per_s = rate_in + rate_out
        noise = float(self._random.normal(0.0, CPU_NOISE_POINTS))
        points = min(100.0, max(0.0, 1.0 + 100.0 * messages_per_s / CAPACITY_MESSAGES_PER_S + noise))
        heartbeat = f"pulsar/{CLUSTER}/{broker}/0x00000000_0xffffffff"
        report = LocalBrokerData(
            cpu=Resource(usage=points * CORES_COUNT, limit=100.0 * CORES_COUNT),
            memory=Resource(usage=900.0 + 4.0 * len(listed), limit=2048.0),
            directMemory=Resource(usage=512.0 + 8.0 * points, limit=4096.0),
            bandwidthIn=_bandwidth(volume_in),
            bandwidthOut=_bandwidth(volume_out),
            msgRateIn=rate_in,
            msgRateOut=rate_out,
            msgThroughputIn=volume_in,
            msgThroughputOut=volume_out,
            lastStats={heartbeat: BundleStats()} | listed,
            bundles=[heartbeat, *listed],
        )
        return BrokerNow(
            broker=broker,
            usage_points=points,
            messages_per_s=messages_per_s,
            bundles_count=len(listed),
            report=report,
            topics={name: self._bundles[name].topic_stats(factor) for name, factor in factors.items()},
        )


def _sums(stats: Iterable[BundleStats]) -> list[float]:
    """The four rates of a broker."""
    rows = list(stats)
    return [math.fsum(getattr(row, name) for row in rows) for name in Traffic.__struct_fields__]


def _bandwidth(bytes_per_s: float) -> Resource:
    return Resource(usage=bytes_per_s * 8 / _BITS_PER_KBIT, limit=BANDWIDTH_LIMIT_KBIT_PER_S)


def _first_owners(bundles: dict[str, Bundle]) -> dict[str, str]:
    """Give each bundle, the heaviest first, to the broker that is furthest below its `START_POINTS`."""
    lacking = {
        broker: CAPACITY_MESSAGES_PER_S * points / 100.0
        for broker, points in zip(BROKERS, START_POINTS, strict=True)
    }
    owners = {}
    for bundle in sorted(bundles.values(), key=lambda bundle: (-bundle.messages_per_s, bundle.name)):
        owner = max(BROKERS, key=lambda broker: lacking[broker])
        lacking[owner] -= bundle.messages_per_s
        owners[bundle.name] = owner
    return owners
