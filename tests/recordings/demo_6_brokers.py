"""``demo-6-brokers.ndjson.gz``: half an hour of the simulated fleet of ``make demo``, while nobody acts.

At its start two of the six brokers are hot and one is nearly empty. ``python -m tests.recordings.demo_6_brokers`` writes it anew.
"""

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from deploy.local.demo.fleet import Fleet
from deploy.local.demo.topics import reports_of, tick_of
from state.overlay import epoch_ms
from streaming.contract.messages import LoadReportMessage

FILE = Path(__file__).with_name("demo-6-brokers.ndjson.gz")
_START_MS = epoch_ms(datetime(2026, 11, 27, 9, tzinfo=UTC))
_SWEEP_MS, _SWEEPS_COUNT = 20_000, 90
"""Three sweeps in a round of a minute."""


def events() -> Iterator[bytes]:
    """Load reports and ticks; without statistics of topics, which would be five times as large and only say where to cut a bundle."""
    fleet = Fleet()
    for number in range(_SWEEPS_COUNT):
        sweep = fleet.sweep(_START_MS + number * _SWEEP_MS)
        reports = [each for each in reports_of(sweep) if isinstance(each, LoadReportMessage)]
        for message in (*reports, tick_of(sweep)):
            yield msgspec.json.encode(_rounded(msgspec.to_builtins(message)))


def _rounded(value: Any) -> Any:
    """The same tree with three digits after the point."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items() if each is not None}
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(b"\n".join([*events(), b""]), mtime=0))
