"""Load reports of a synthetic fleet, field for field what a Pulsar broker publishes, as CloudEvents."""

import random
from dataclasses import dataclass

import msgspec

from state.outputs import rfc3339

CLUSTER = "bench"
ROUND_MS = 60_000
BUNDLES_COUNT = 100
"""Bundles of a broker, in all measurements."""

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Brokers of equal size; the busiest hundredth, at least one, carries twice the load of the others."""

    brokers_count: int
    bundles_count: int = BUNDLES_COUNT

    def reports(self, *, time_ms: int) -> list[bytes]:
        """One report of each broker; equal arguments give equal bytes."""
        draw = random.Random(time_ms)  # noqa: S311  a load, not a secret
        return [self._report(broker, time_ms, draw) for broker in range(self.brokers_count)]

    def _report(self, broker: int, time_ms: int, draw: random.Random) -> bytes:
        hot = broker < max(1, self.brokers_count // 100)
        scale = (2.0 if hot else 1.0) * 20_000 / self.bundles_count
        bundles = self._bundles(broker)
        stats = {bundle: _traffic(scale * draw.uniform(0.5, 1.5)) for bundle in bundles}
        rates = {
            name: sum(traffic[name] for traffic in stats.values())
            for name in ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
        }
        return event(
            "trimtab.pulsar.load-report.v1",
            subject=f"broker-{broker:04d}.pulsar.example:8080",
            time_ms=time_ms + broker,
            data=_broker(broker, usage_points=60.0 if hot else 30.0)
            | rates
            | {"lastStats": stats, "bundles": bundles},
        )

    def _bundles(self, broker: int) -> list[str]:
        """In the order of a hash set, the same in every report."""
        width = 2**32 // self.bundles_count
        namespace = f"tenant-{broker % 50:02d}/namespace-{broker:04d}"
        names = [
            f"{namespace}/0x{width * place:08x}_0x{width * (place + 1):08x}"
            for place in range(self.bundles_count)
        ]
        random.Random(broker).shuffle(names)  # noqa: S311
        return names


def tick(*, time_ms: int) -> bytes:
    """The end of a sweep."""
    return event("trimtab.tick.v1", subject="tick", time_ms=time_ms, data={"asked": [], "failed": {}})


def event(type_: str, *, subject: str, time_ms: int, data: object) -> bytes:
    """A CloudEvent of the cluster."""
    return _encoder.encode(
        {
            "specversion": "1.0",
            "id": f"{subject}/{time_ms}",
            "source": "/collector/pulsar/bench",
            "type": type_,
            "subject": subject,
            "time": rfc3339(time_ms),
            "cluster": CLUSTER,
            "datacontenttype": "application/json",
            "data": data,
        }
    )


def _traffic(messages_per_s: float) -> dict[str, float]:
    return {
        "msgRateIn": messages_per_s * 0.4,
        "msgThroughputIn": messages_per_s * 410.3,
        "msgRateOut": messages_per_s * 0.6,
        "msgThroughputOut": messages_per_s * 615.7,
        "consumerCount": 3,
        "producerCount": 1,
        "topics": 2,
        "cacheSize": 0,
    }


def _broker(broker: int, *, usage_points: float) -> dict[str, object]:
    return {
        "webServiceUrl": f"http://broker-{broker:04d}.pulsar.example:8080",
        "pulsarServiceUrl": f"pulsar://broker-{broker:04d}.pulsar.example:6650",
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "cpu": {"usage": 8 * usage_points, "limit": 800.0},
        "memory": {"usage": 1170.27496337890625, "limit": 4096.0},
        "directMemory": {"usage": 116.0, "limit": 8192.0},
        "bandwidthIn": {"usage": 81231.53, "limit": 1000000.0},
        "bandwidthOut": {"usage": 123133.07, "limit": 1000000.0},
        "lastUpdate": 1795267284054,
        "numTopics": 200,
        "numBundles": 100,
        "numConsumers": 300,
        "numProducers": 100,
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": "4.0.7",
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "startTimestamp": 1795267278986,
        "maxResourceUsage": usage_points / 100,
        "loadReportType": "LocalBrokerData",
    }
