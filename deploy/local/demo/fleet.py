"""A simulated Pulsar cluster: brokers with bundles under traffic, which reports its load and follows unloads.

Pure: the caller brings the clock and carries the messages. The same seed and the same calls give the same numbers.

Invariants: every bundle has one owner; a bundle that moves is listed by both brokers in exactly one sweep, as real
brokers do, and its traffic is then split between them; the CPU follows the traffic, so usage tells brokers apart.

What it does not do: splits, broker failures, clients that need time to reconnect.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from state.outputs import Unload, rfc3339
from streaming.wire.messages import ActionResultData, LocalBrokerData, Resource, Traffic

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
WEIGHT_SIGMA = 0.7
"""Spread of the bundles' sizes (log-normal): the heaviest is about five times the median."""

_HASHES = 1 << 32
_BITS_PER_KBIT = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Namespace:
    name: str
    bundles_count: int
    message_bytes: float
    fan_out_ratio: float
    """Messages delivered for each one published."""


NAMESPACES = (
    _Namespace(name="shop/orders", bundles_count=32, message_bytes=700.0, fan_out_ratio=2.0),
    _Namespace(name="shop/clicks", bundles_count=16, message_bytes=250.0, fan_out_ratio=1.0),
    _Namespace(name="bank/payments", bundles_count=16, message_bytes=1_400.0, fan_out_ratio=3.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bundle:
    name: str
    namespace: _Namespace
    messages_per_s: float
    """Mean rate, in and out together."""
    drift_period_s: float
    drift_phase: float

    def traffic(self, messages_per_s: float) -> Traffic:
        rate_in = messages_per_s / (1.0 + self.namespace.fan_out_ratio)
        rate_out = messages_per_s - rate_in
        size = self.namespace.message_bytes
        return Traffic(
            msgRateIn=rate_in,
            msgRateOut=rate_out,
            msgThroughputIn=rate_in * size,
            msgThroughputOut=rate_out * size,
        )


class BrokerReport(LocalBrokerData, frozen=True, kw_only=True):
    """Pulsar's `LocalBrokerData` with the fields that real reports have and trimtab does not read."""

    webServiceUrl: str  # noqa: N815
    pulsarServiceUrl: str  # noqa: N815
    brokerVersionString: str = "4.0.7"  # noqa: N815
    loadManagerClassName: str = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"  # noqa: N815
    loadReportType: str = "LocalBrokerData"  # noqa: N815
    lastUpdate: int  # noqa: N815
    numBundles: int  # noqa: N815
    protocols: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNow:
    """One broker in a sweep."""

    broker: str
    usage_points: float
    """CPU, 100 = all cores busy."""
    messages_per_s: float
    bundles_count: int
    report: BrokerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of an action."""

    action_id: str
    outcome: Literal["succeeded", "skipped"]
    reason: str

    def data(self) -> ActionResultData:
        """As it is published."""
        return ActionResultData(outcome=self.outcome, reason=self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One round of reports, and the moves it found finished."""

    number: int
    time_ms: int
    brokers: tuple[BrokerNow, ...]
    finished: tuple[Result, ...]


@dataclass(slots=True, kw_only=True)
class _Move:
    action_id: str
    bundle: str
    source: str
    destination: str
    listed_twice: bool = False


@dataclass(slots=True)
class Fleet:
    """Brokers, bundles and the moves under way; `seed` fixes sizes, first owners and noise."""

    seed: int = SEED
    _random: np.random.Generator = field(init=False, repr=False)
    _bundles: dict[str, _Bundle] = field(init=False, repr=False)
    _owners: dict[str, str] = field(init=False, repr=False)
    _moves: dict[str, _Move] = field(init=False, repr=False, default_factory=dict)
    _sweeps_count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._bundles = {bundle.name: bundle for bundle in _bundles(self._random)}
        self._owners = _first_owners(self._bundles)

    @property
    def bundles_count(self) -> int:
        """Bundles of the whole fleet, heartbeat bundles not counted."""
        return len(self._bundles)

    def owner(self, bundle: str) -> str | None:
        """Broker that owns a bundle; None for a bundle that does not exist."""
        return self._owners.get(bundle)

    def follow(self, action_id: str, unload: Unload, *, now_ms: int) -> Result | None:
        """Take an unload; it begins with the next sweep. A result at once where it cannot be carried out."""
        why_not = self._why_not(unload, now_ms)
        if why_not is not None:
            return Result(action_id=action_id, outcome="skipped", reason=why_not)
        self._moves[unload.bundle] = _Move(
            action_id=action_id,
            bundle=unload.bundle,
            source=unload.source_broker,
            destination=unload.destination_broker or self._idlest(),
        )
        return None

    def sweep(self, now_ms: int) -> Sweep:
        """Let moves go on by one step and report every broker's load at ``now_ms``."""
        finished = [self._finish(move) for move in list(self._moves.values()) if move.listed_twice]
        for move in self._moves.values():
            move.listed_twice = True
            self._owners[move.bundle] = move.destination
        self._sweeps_count += 1
        listed: dict[str, dict[str, Traffic]] = {broker: {} for broker in BROKERS}
        for name, bundle in self._bundles.items():
            rate = self._rate(bundle, now_ms)
            move_now = self._moves.get(name)
            if move_now is None:
                listed[self._owners[name]][name] = bundle.traffic(rate)
                continue
            for broker in (move_now.source, move_now.destination):
                listed[broker][name] = bundle.traffic(rate / 2)
        return Sweep(
            number=self._sweeps_count,
            time_ms=now_ms,
            brokers=tuple(self._broker_now(broker, listed[broker], now_ms) for broker in BROKERS),
            finished=tuple(finished),
        )

    def _why_not(self, unload: Unload, now_ms: int) -> str | None:
        owner = self._owners.get(unload.bundle)
        if owner is None:
            return f"there is no bundle {unload.bundle}"
        if unload.expires_at <= rfc3339(now_ms):
            return f"it expired at {unload.expires_at}"
        if unload.bundle in self._moves:
            return f"{unload.bundle} is moving already"
        if owner != unload.precondition["owner"]:
            return f"{unload.bundle} belongs to {owner}, not to {unload.precondition['owner']}"
        if unload.destination_broker is not None and unload.destination_broker not in BROKERS:
            return f"there is no broker {unload.destination_broker}"
        return None

    def _idlest(self) -> str:
        """Where Pulsar's own placement puts a bundle that names no destination: on the least loaded broker."""
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

    def _rate(self, bundle: _Bundle, now_ms: int) -> float:
        angle = 2 * math.pi * (now_ms / 1000 / bundle.drift_period_s + bundle.drift_phase)
        noise = float(self._random.normal(0.0, NOISE_RATIO))
        return bundle.messages_per_s * max(0.0, 1.0 + DRIFT_RATIO * math.sin(angle) + noise)

    def _broker_now(self, broker: str, listed: dict[str, Traffic], now_ms: int) -> BrokerNow:
        sums = np.array([msgspec.structs.astuple(row) for row in listed.values()] or [(0.0,) * 4]).sum(axis=0)
        rate_in, rate_out, volume_in, volume_out = sums.tolist()
        messages_per_s = rate_in + rate_out
        noise = float(self._random.normal(0.0, CPU_NOISE_POINTS))
        points = min(100.0, max(0.0, 1.0 + 100.0 * messages_per_s / CAPACITY_MESSAGES_PER_S + noise))
        heartbeat = f"pulsar/{CLUSTER}/{broker}/0x00000000_0xffffffff"
        host = broker.partition(":")[0]
        report = BrokerReport(
            webServiceUrl=f"http://{broker}",
            pulsarServiceUrl=f"pulsar://{host}:6650",
            cpu=Resource(usage=points * CORES_COUNT, limit=100.0 * CORES_COUNT),
            memory=Resource(usage=900.0 + 4.0 * len(listed), limit=2048.0),
            directMemory=Resource(usage=512.0 + 8.0 * points, limit=4096.0),
            bandwidthIn=_bandwidth(volume_in),
            bandwidthOut=_bandwidth(volume_out),
            msgRateIn=rate_in,
            msgRateOut=rate_out,
            msgThroughputIn=volume_in,
            msgThroughputOut=volume_out,
            lastUpdate=now_ms,
            lastStats={heartbeat: Traffic()} | listed,
            bundles=[heartbeat, *listed],
            numBundles=len(listed) + 1,
        )
        return BrokerNow(
            broker=broker,
            usage_points=points,
            messages_per_s=messages_per_s,
            bundles_count=len(listed),
            report=report,
        )


def _bandwidth(bytes_per_s: float) -> Resource:
    return Resource(usage=bytes_per_s * 8 / _BITS_PER_KBIT, limit=BANDWIDTH_LIMIT_KBIT_PER_S)


def _bundles(random: np.random.Generator) -> list[_Bundle]:
    """All bundles, their mean rates adding up to what `START_POINTS` ask for."""
    shapes = [(namespace, name) for namespace in NAMESPACES for name in _names(namespace)]
    weights = random.lognormal(0.0, WEIGHT_SIGMA, len(shapes))
    total = CAPACITY_MESSAGES_PER_S * sum(START_POINTS) / 100.0
    return [
        _Bundle(
            name=name,
            namespace=namespace,
            messages_per_s=float(weight) * total / float(weights.sum()),
            drift_period_s=float(random.uniform(60.0, 240.0)),
            drift_phase=float(random.uniform()),
        )
        for (namespace, name), weight in zip(shapes, weights.tolist(), strict=True)
    ]


def _names(namespace: _Namespace) -> list[str]:
    """Equal slices of the hash range; the last one ends at 0xffffffff, as Pulsar's do."""
    edges = [_HASHES * slot // namespace.bundles_count for slot in range(namespace.bundles_count)]
    ends = [*edges[1:], _HASHES - 1]
    return [f"{namespace.name}/0x{low:08x}_0x{high:08x}" for low, high in zip(edges, ends, strict=True)]


def _first_owners(bundles: dict[str, _Bundle]) -> dict[str, str]:
    """Heaviest first, each to the broker that lacks most of its `START_POINTS`."""
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
