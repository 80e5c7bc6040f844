"""How the cost of a round grows with clusters, brokers and bundles: `python -m tests.bench.scaling`.

One controller on this machine decides loads of growing size, each of new clusters; what its processes use for a round
is measured (as CPU time, which other programs disturb less than elapsed time) and written into docs/run/scaling.md, between
its markers.
"""

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.end_to_end import closing, first_round
from tests.bench.loads import CLUSTER, ROUND_MS, Fleet
from tests.bench.report import machine, percentile, today
from tests.bench.running import Clients, bench, on_kafka, run

PAGE = Path(__file__).parents[2] / "docs" / "run" / "scaling.md"
BUSY_SHARE = 0.5
"""How much of a core the sizing lets a controller use, so that it catches up twice as fast as it falls behind."""

_BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end of what was measured -->)", re.DOTALL)
_ROUNDS_COUNT, _WARM_UP_COUNT = 3, 2
_MIB = 1024 * 1024
_HEAD = (
    "| clusters | brokers each | bundles a broker | bundles in all | reports a round, MB | CPU a round, s "
    "| sent to decided, s | of one core, rounds of 60 s | resident, MiB | checkpoint, MB |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Clusters of one size."""

    clusters_count: int
    brokers_count: int
    """In each cluster."""
    bundles_count: int
    """On each broker."""

    @property
    def all_bundles_count(self) -> int:
        return self.clusters_count * self.brokers_count * self.bundles_count


LOADS = [
    Load(clusters_count=clusters, brokers_count=brokers, bundles_count=bundles)
    for clusters, brokers, bundles in (
        (1, 10, 100),
        (1, 100, 100),
        (10, 10, 100),
        (1, 300, 100),
        (1, 30, 1000),
        (30, 10, 100),
        (1, 1000, 100),
        (300, 10, 100),
    )
]
"""Small ones first: memory is what is resident after each load, and the processes never give it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a round of a load took."""

    load: Load
    reports_bytes: int
    cpu_s: float
    """CPU seconds of driver, JVM and Python workers together."""
    elapsed_s: float
    """Seconds from the first report sent to the last summary readable."""
    resident_bytes: int
    checkpoint_bytes: int


def measure(loads: Sequence[Load]) -> list[Cost]:
    """Every load's cost, one after another on one controller."""
    with bench() as (stack, kafka, directory):
        controller = run(stack, on_kafka(kafka, directory, "scaling"), trigger_interval_s=0.2)
        clients = Clients(stack, controller, summaries=True)
        return [_cost(place, load, clients) for place, load in enumerate(loads)]


def _cost(place: int, load: Load, clients: Clients) -> Cost:
    controller, first = clients.controller, first_round()
    used_s, elapsed_s, size_bytes = [], [], 0
    for number in range(first, first + _WARM_UP_COUNT + _ROUNDS_COUNT):
        events = _round(place, load, number)
        size_bytes = sum(len(value) for values in events.values() for value in values)
        before_s, begun = controller.cpu_s(), time.perf_counter()
        _play(clients, events)
        elapsed_s.append(time.perf_counter() - begun)
        used_s.append(controller.used_s(before_s))
    cost = Cost(
        load=load,
        reports_bytes=size_bytes,
        cpu_s=percentile(used_s[_WARM_UP_COUNT:], 0.5),
        elapsed_s=percentile(elapsed_s[_WARM_UP_COUNT:], 0.5),
        resident_bytes=controller.resident_bytes(),
        checkpoint_bytes=_size_bytes(controller.stage.checkpoint),
    )
    sys.stdout.write(f"{_line(cost)}\n")
    sys.stdout.flush()
    return cost


def _play(clients: Clients, events: Mapping[str, Sequence[bytes]]) -> None:
    """Send the events of a round, and return when each cluster's summary has come."""
    seen = 0

    def are_all_there() -> bool:
        nonlocal seen
        seen += len(clients.answers())
        return seen >= len(events)

    for cluster, values in events.items():
        clients.send(values[:-1], cluster=cluster)
    for cluster, values in events.items():
        clients.send(values[-1:], cluster=cluster)
    clients.wait_for(are_all_there)


def _round(place: int, load: Load, number: int) -> dict[str, list[bytes]]:
    """All reports of each cluster, and last the tick that closes the round; one fleet, under the names of all clusters."""
    fleet = Fleet(brokers_count=load.brokers_count, bundles_count=load.bundles_count)
    events = [*fleet.reports(time_ms=number * ROUND_MS), closing(number)]
    names = [f"load-{place}-{cluster}" for cluster in range(load.clusters_count)]
    return {name: [_renamed(value, name) for value in events] for name in names}


def _renamed(value: bytes, cluster: str) -> bytes:
    return value.replace(f'"cluster":"{CLUSTER}"'.encode(), f'"cluster":"{cluster}"'.encode(), 1)


def _size_bytes(directory: Path) -> int:
    size_bytes = 0
    for file in directory.rglob("*"):
        with suppress(FileNotFoundError):  # Spark removes old versions meanwhile
            size_bytes += file.stat().st_size if file.is_file() else 0
    return size_bytes


def block(costs: Sequence[Cost]) -> str:
    """What goes between the markers: the machine, the measurements, and the sizes that follow from them."""
    return "\n".join(
        [
            "",
            "Written by `python -m tests.bench.scaling`; do not edit.",
            "",
            *(f"* {line}" for line in (f"measured on {today()}", *machine())),
            "",
            _HEAD,
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            *map(_line, costs),
            "",
            *_sizing(costs),
            "",
        ]
    )


def _line(cost: Cost) -> str:
    load, share = cost.load, cost.cpu_s / (ROUND_MS / 1000)
    return (
        f"| {load.clusters_count} | {load.brokers_count} | {load.bundles_count} | {load.all_bundles_count:,} "
        f"| {cost.reports_bytes / 1e6:.1f} | {cost.cpu_s:.2f} | {cost.elapsed_s:.2f} | {100 * share:.1f} % "
        f"| {cost.resident_bytes / _MIB:,.0f} | {cost.checkpoint_bytes / 1e6:.0f} |"
    )


def _sizing(costs: Sequence[Cost]) -> list[str]:
    """Cores for multiples of the costliest load of each size, and what is resident at the end."""
    dearest: dict[int, Cost] = {}
    for cost in costs:
        size = cost.load.all_bundles_count
        if size not in dearest or dearest[size].cpu_s < cost.cpu_s:
            dearest[size] = cost
    return [
        f"Cores with which a controller is busy {100 * BUSY_SHARE:.0f} % of the time, by the costliest load of each size:",
        "",
        "| bundles in all | rounds of 60 s | rounds of 10 s |",
        "|---:|---:|---:|",
        *(
            f"| {size:,} | {_cores(cost, 60)} | {_cores(cost, 10)} |"
            for size, cost in sorted(dearest.items())
        ),
    ]


def _cores(cost: Cost, length_s: int) -> str:
    return f"{cost.cpu_s / length_s / BUSY_SHARE:.2f}"


def main() -> None:
    """Measure, and write the page's block (not with `--quick`)."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scaling", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only the three smallest loads, to see whether it works"
    )
    quick = parser.parse_args().quick
    made = block(measure(LOADS[:3] if quick else LOADS))
    if quick:
        return
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_BLOCK.sub(lambda at: at[1] + made + at[2], text), encoding="utf-8")
    sys.stdout.write(f"written to {PAGE}\n")


if __name__ == "__main__":
    main()
