"""A small Pulsar fleet for ``trimtab feed`` without a recording: four brokers, one of which carries half of the traffic.

It is made up and does not react to what is decided.
"""

from collections.abc import Iterator

import msgspec

from state.outputs import rfc3339
from streaming.contract.messages import LoadReportMessage, TickMessage, type_of

CLUSTER = "sample"
_BROKERS = {"broker-1:8080": 12, "broker-2:8080": 5, "broker-3:8080": 4, "broker-4:8080": 3}
"""Bundles of each broker; all carry about the same."""
_MESSAGES_PER_S, _BYTES_PER_MESSAGE = 900.0, 1_000.0
_CPU_POINTS_PER_BUNDLE, _IDLE_CPU_POINTS = 6.5, 5.0
_SWEEP_S, _SWEEPS_COUNT = 20, 3 * 60
"""Three sweeps in a round of a minute, for an hour."""
_LOAD_REPORT, _TICK = type_of(LoadReportMessage), type_of(TickMessage)


def sample_events() -> Iterator[bytes]:
    """Load reports and ticks as lines, from the epoch on."""
    for number in range(_SWEEPS_COUNT):
        time_ms = 1000 * _SWEEP_S * number
        for broker, count in _BROKERS.items():
            yield _event(_LOAD_REPORT, broker, time_ms, _report(broker, count, number))
        yield _event(_TICK, "tick", time_ms, {"asked": list(_BROKERS), "failed": {}})


def _report(broker: str, count: int, number: int) -> dict[str, object]:
    """Traffic swings a little from sweep to sweep, so that no two rounds are equal."""
    wave = 1.0 + 0.02 * ((7 * number) % 5 - 2)
    bundles = [_bundle(broker, place) for place in range(count)]
    traffic = _traffic(_MESSAGES_PER_S * wave)
    return {
        "cpu": {"usage": _IDLE_CPU_POINTS + _CPU_POINTS_PER_BUNDLE * count * wave, "limit": 100.0},
        **_traffic(_MESSAGES_PER_S * wave * count),
        "bundles": bundles,
        "lastStats": dict.fromkeys(bundles, traffic),
    }


def _traffic(messages_per_s: float) -> dict[str, float]:
    volume = messages_per_s * _BYTES_PER_MESSAGE
    return {
        "msgRateIn": messages_per_s,
        "msgRateOut": messages_per_s,
        "msgThroughputIn": volume,
        "msgThroughputOut": volume,
    }


def _bundle(broker: str, place: int) -> str:
    low = 0x1000_0000 * place
    return f"shop/orders-{broker.partition(':')[0][-1]}/0x{low:08x}_0x{low + 0x1000_0000:08x}"


def _event(type_: str, subject: str, time_ms: int, data: object) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": f"{subject}/{time_ms}",
            "source": "/trimtab/feed",
            "type": type_,
            "subject": subject,
            "time": rfc3339(time_ms),
            "cluster": CLUSTER,
            "data": data,
        }
    )
