"""``docs/understand/simulations.md``: what the policies do to simulated fleets, on seeds that were not used to develop them.

``python -m deploy.simulations`` runs every scenario and writes the page; it takes some minutes. ``--only POLICY`` plays one policy and puts its
rows into the page; the figures of others stay. This module also has the text around the figures.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from streaming.settings import ClusterSettingsSource, load
from streaming.simulator.runs import NOBODY, PERFECT, Build, Candidate, jobs_of, play_all
from streaming.simulator.scenarios import BY_NAME, SCENARIOS
from streaming.simulator.score import ALL, COLUMNS, Column, Run, card, show
from streaming.simulator.setup import SESSIONS_COUNT, Setup

PAGE: Final = Path(__file__).parents[1] / "docs" / "understand" / "simulations.md"
SEEDS = range(7001, 7006)
VARIED_SCENARIOS = ("one-hot-broker", "scale-out", "surge", "noise-alone")
_POLICIES = ("avg-shedder", "transfer-shedder", "fleet-planner")
_VARIED_POLICIES = ("avg-shedder", "fleet-planner")
_SHOWN = (
    "unbalanced_percent",
    "unloads",
    "needless",
    "sent_back",
    "recovery_rounds",
    "ended_balanced_percent",
)

_INTRODUCTION = """\
# Simulations

For whoever chooses a policy, or doubts one. Afterwards you know what each does to fleets in trouble, and what the model leaves out.

`trimtab simulate` balances a fleet that does not exist with the controller that runs live, with all its guards and budgets, and counts
what each policy does to it. It needs no broker. This page shows the figures of AvgShedder, TransferShedder and the fleet planner, and says
what the model assumes. `--policy threshold-shedder` runs another.

```sh
trimtab simulate --scenario scale-out --seeds 5 --html page.html           # AvgShedder beside the fleet planner
trimtab simulate --scenario all --config now.toml --config candidate.toml  # your settings
trimtab simulate --from recording.ndjson.gz --config now.toml              # your fleet, from `trimtab record`
```

A fleet is **balanced** while the hottest and the coldest broker are at most 15 points of usage apart; measurement noise and fast noise of
the traffic do not count. *Perfect information* knows the true load of every bundle and broker, moves once a minute where the fleet is not
balanced, and obeys no rule. It is the floor where no bundle has to be split: it splits none, and makes no move that lowers its brokers by
less than 0.5 points, so with very hot or very small bundles a policy can be below it. *Nobody acts* is the ceiling.

| column | what it counts; a round is a minute |
|---|---|
| unbalanced % | rounds that ended with more than 15 points between the hottest and the coldest broker |
| unloads | moves that were decided, in a run |
| needless | those of them that were decided while the fleet was balanced |
| sent back | those that took a bundle back to where its last move had taken it from |
| recovery | rounds from a disturbance until the fleet was balanced, as a mean of those that it recovered from before the next one; a dash: none |
| ends balanced % | runs whose last ten rounds were balanced |

Policies are developed on seeds 1 to 99 (`python -m tests.bench.simulations`), and judged on seeds from 1000 on that nobody has looked at
before: whoever has looked into the runs of a seed has used it up. The seeds of this page are for nothing else.
"""

_MODEL = """\
## What the model assumes

* **Traffic.** The message rate of a bundle is a base times a slow drift, the daily swing of its namespace, its surges, and noise that
  lasts about 40 seconds, for the bundle and for its namespace. Topics differ in size by a log-normal distribution; message sizes and
  fan-out differ by namespace. The traffic of a seed is the same for every policy.
* **Machines.** Usage is proportional to traffic above an idle part, with a cost for each message and each byte that differs between brokers.
  Above 80 % usage saturates. The network carries what comes in, what goes out, and two copies of what comes in. A broker can hold
  100,000 sessions; the settings declare it (`[pulsar.capacity] sessions_count`). Some brokers do not know their network, or take the
  limit of their CPU for lower than it is.
* **Measuring.** Brokers take their figures once a minute, each at its own moment, as means over the minute. CPU has an error that lasts
  about half a minute, and spikes. A collector asks twice a minute; reports are lost now and then.
* **Moves** begin up to 20 seconds after their decision, take a bundle's clients off for up to 8 seconds, and fail once in a hundred
  times. Messages that could not be sent follow later; clients that come back cost CPU. Until its next figures the old owner still lists
  the bundle.
* **Pulsar's placement** gives bundles of brokers that leave, and of unloads without a destination, to the broker with the lowest message
  rate of a minute ago. A broker that comes back is empty.
* **What brokers publish.** TransferShedder runs on brokers with the extensible load manager: they look at their load every five seconds,
  smooth it with each look, publish it when it has changed by 10 %, and take it back when a bundle comes or goes. Their ten heaviest
  bundles are known.
* **Splits** cut where Pulsar would: topics are real names with Pulsar's positions.

The fleet planner's own model has the same form as this one: a cost for each message and each byte, and a factor for each broker. That
favours it; [a real cluster](comparison.md) does not.

Not in the model: publishers that slow down when a broker is full, bookies, garbage collection that depends on load, memory, failure domains,
and isolation policies. A fleet from a recording has its brokers, bundles, rates and noise; what a message
and a byte cost is learned from the reports, as the controller learns it.
"""


@dataclass(frozen=True, slots=True)
class Varied:
    """A scenario under another assumption."""

    build: Build
    change: Callable[[Setup], Setup]

    def __call__(self, rng: np.random.Generator) -> Setup:
        """The fleet at its beginning."""
        return self.change(self.build(rng))


def _more_cpu_error(setup: Setup) -> Setup:
    return replace(setup, measuring=replace(setup.measuring, cpu_error_points=4.0, cpu_error_s=120.0))


def _more_spikes(setup: Setup) -> Setup:
    return replace(setup, measuring=replace(setup.measuring, spike_ratio=1 / 15, spike_points=50.0))


def _slow_moves(setup: Setup) -> Setup:
    return replace(setup, moving=replace(setup.moving, order_s=120.0, outage_s=10.0))


def _failing_moves(setup: Setup) -> Setup:
    return replace(setup, moving=replace(setup.moving, failed_ratio=0.15))


def _costly_moves(setup: Setup) -> Setup:
    return replace(setup, moving=replace(setup.moving, reconnect_ratio=3.0))


def _nervous_traffic(setup: Setup) -> Setup:
    sources = setup.sources
    return replace(
        setup,
        sources=replace(
            sources, noise_ratio=1.6 * sources.noise_ratio, noise_s=120.0, common_noise_ratio=0.15
        ),
    )


def _unlike_costs(setup: Setup) -> Setup:
    machines, spread = setup.machines, np.linspace(0.7, 1.4, len(setup.machines))
    return replace(
        setup,
        machines=replace(
            machines,
            cpu_s_per_message=machines.cpu_s_per_message * spread,
            cpu_s_per_byte=machines.cpu_s_per_byte * spread[::-1],
        ),
    )


def _large_messages(setup: Setup) -> Setup:
    sources = setup.sources
    return replace(
        setup,
        sources=replace(
            sources,
            bytes_per_message=20 * sources.bytes_per_message,
            messages_per_s=sources.messages_per_s / 6,
        ),
    )


def _keep_setup(setup: Setup) -> Setup:
    return setup


VARIATIONS: Final = (
    ("as above", _keep_setup),
    ("CPU error of 4 points that lasts two minutes", _more_cpu_error),
    ("a spike of up to 50 points in one of 15 figures", _more_spikes),
    ("moves begin up to two minutes late", _slow_moves),
    ("one move of seven fails", _failing_moves),
    ("clients that come back cost six times as much", _costly_moves),
    ("traffic noise 1.6 times as large, for three times as long", _nervous_traffic),
    ("costs differ by a factor of two between brokers", _unlike_costs),
    ("messages 20 times as large", _large_messages),
)


def _candidate(policy: str) -> Candidate:
    flags = {
        "pulsar.shedding_policy": policy,
        "pulsar.split.enabled": True,
        "pulsar.capacity.sessions_count": SESSIONS_COUNT,
    }
    settings = load(file=Path(os.devnull), flags=flags, environ={}).settings
    return Candidate(name=policy, settings=ClusterSettingsSource(settings))


def _play(scenarios: Sequence[tuple[str, Build]], candidates: Sequence[Candidate]) -> list[Run]:
    jobs = jobs_of(scenarios, SEEDS, candidates)
    counter = itertools.count(1)
    runs = play_all(
        jobs,
        advance=lambda _: print(
            f"\r{next(counter)} of {len(jobs)} runs", end="", file=sys.stderr, flush=True
        ),
    )
    print(file=sys.stderr)
    return runs


def _table(rows: dict[str, dict[str, float | None]], first: str) -> list[str]:
    return [
        f"| {first} | {' | '.join(column.title for column in _columns())} |",
        f"|---|{'--:|' * len(_columns())}",
        *(_row(name, figures) for name, figures in rows.items()),
        "",
    ]


def _columns() -> list[Column]:
    return [column for column in COLUMNS if column.key in _SHOWN]


def _row(name: str, figures: dict[str, float | None]) -> str:
    return f"| {name} | {' | '.join(show(figures[column.key], column) for column in _columns())} |"


def with_rows(page: str, name: str, figures: dict[str, dict[str, dict[str, float | None]]]) -> str:
    """The page with the rows of one policy in its score card, in the order of all policies."""
    order = [NOBODY.name, *_POLICIES, PERFECT.name]
    lines, scenario = [], ""
    for line in page.splitlines():
        cells = line.split(" | ")
        title = cells[0].removeprefix("| ")
        if line.startswith("#") or title == ALL:
            scenario = title.removeprefix("### ")
        if scenario in figures and title in order:
            if title == name:
                continue
            if title == order[order.index(name) + 1]:
                lines.append(_row(name, figures[scenario][name]))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _vary(policies: Sequence[Candidate]) -> list[str]:
    chosen = [BY_NAME[name] for name in VARIED_SCENARIOS]
    by_policy: dict[str, dict[str, dict[str, float | None]]] = {policy.name: {} for policy in policies}
    for title, change in VARIATIONS:
        runs = _play([(scenario.name, Varied(scenario.build, change)) for scenario in chosen], policies)
        for name, figures in card(runs)[ALL].items():
            by_policy[name][title] = figures
    lines = []
    for name, rows in by_policy.items():
        lines += [f"### {name}", "", *_table(rows, "assumption")]
    return lines


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m deploy.simulations")
    parser.add_argument("--only", choices=_POLICIES, help="put the rows of this policy into the page")
    only = parser.parse_args().only
    scenarios = [(scenario.name, scenario.build) for scenario in SCENARIOS]
    if only is None:
        text = _page(scenarios)
    else:
        figures = card(_play(scenarios, [_candidate(only)]))
        text = with_rows(PAGE.read_text(encoding="utf-8"), only, figures)
        if only in _VARIED_POLICIES:
            head, _, after = text.rpartition(f"### {only}\n")
            _, more, tail = after.partition("\n### ")
            text = head + "\n".join(_vary([_candidate(only)])) + more + tail
            text = text.rstrip() + "\n"
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE} written")


def _page(scenarios: Sequence[tuple[str, Build]]) -> str:
    policies = [_candidate(name) for name in _POLICIES]
    runs = _play(scenarios, [NOBODY, *policies, PERFECT])
    figures = card(runs)
    seeds = f"{len(SEEDS)} seeds ({SEEDS[0]} to {SEEDS[-1]})"
    lines = [
        _INTRODUCTION,
        "## Score card",
        "",
        (
            f"Means over {seeds}, with splits on (`[pulsar.split] enabled = true`), other settings as they are by default. Written by "
            f"`python -m deploy.simulations`; the figures do not depend on the machine."
        ),
        "",
        *_table(figures.pop(ALL), ALL),
    ]
    for scenario, rows in figures.items():
        lines += [
            f"### {scenario}",
            "",
            f"{BY_NAME[scenario].summary.capitalize()}.",
            "",
            *_table(rows, ""),
        ]
    varied = ", ".join(VARIED_SCENARIOS)
    lines += [
        _MODEL,
        "## With other assumptions",
        "",
        f"Means over {varied}, and {seeds}.",
        "",
        *_vary([_candidate(name) for name in _VARIED_POLICIES]),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
