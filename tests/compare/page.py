"""``docs/understand/comparison.md`` and its pictures, from the rows that runs left; nothing is run for it."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.compare.balancers import BALANCERS, BYTE_PARTS, MESSAGE_PARTS, TIME_PARTS
from tests.compare.judging import SPREAD_POINTS, SPREAD_RATIO
from tests.compare.scenarios import CARD_GBIT_PER_S, SCENARIOS, SEEDS, Scenario

DOCS = Path(__file__).parents[2] / "docs" / "understand"
PAGE = DOCS / "comparison.md"
PLANNER, WITHOUT_SPLITS = "trimtab-fleet-planner", "trimtab-no-splits"
Row = Mapping[str, Any]

_COLUMNS: Sequence[tuple[str, str]] = (
    ("unbalanced s", "unbalanced_s"),
    ("balanced after s", "balanced_after_s"),
    ("rates within 15 % after s", "rates_balanced_after_s"),
    ("unloads", "unloads"),
    ("sent back", "sent_back"),
    ("moved twice", "moved_twice"),
    ("splits", "splits"),
    ("p50 ms", "publish_p50_ms"),
    ("p99 ms", "publish_p99_ms"),
    ("max ms", "publish_max_ms"),
    ("above 1 s", "publishes_above_1_s"),
    ("longest gap s", "longest_gap_s"),
    ("reconnects", "reconnects"),
    ("lost", "lost"),
    ("redelivered", "redelivered"),
    ("stored twice", "repeated"),
    ("CPU %", "balancer_cpu_percent"),
)
EQUAL_S, EQUAL_UNLOADS, EQUAL_PUBLISHES = 60, 1, 20
"""Up to which difference two balancers count as equal."""
_JUDGED: Sequence[tuple[str, str, float]] = (
    ("time out of balance", "unbalanced_s", EQUAL_S),
    ("unloads", "unloads", EQUAL_UNLOADS),
    ("publishes above 1 s", "publishes_above_1_s", EQUAL_PUBLISHES),
)

_HEAD = f"""\
# Comparison on a real cluster

For whoever chooses a balancer. Afterwards you know what Pulsar's own balancers and trimtab did to the same real cluster under the same
traffic, and what clients felt. A program wrote this page from `tests/compare/results.ndjson`, and you can measure each figure again:

```sh
sudo make compare ONLY=hot-broker/trimtab-fleet-planner/1   # one cell, in a quarter of an hour; its row is replaced
sudo make compare                                            # all that has no row yet
.venv/bin/python -m tests.compare --page                     # this page anew from the rows
```

## How it is done

* A real Pulsar 4.2.4: ZooKeeper, a bookie, and each broker in a network namespace of its own, with its own network card, on one machine.
  Producers and consumers of every topic run beside it, and publish the same messages, drawn from a seed, under every balancer.
* **Usage is bandwidth.** Brokers on one host share its processors, so the weight of CPU is 0 for everybody, and a card carries
  {CARD_GBIT_PER_S * 1000:g} Mbit/s each way (`loadBalancerOverrideBrokerNicSpeedGbps`).
* Pulsar's balancers are **at their documented defaults**, which include splits. trimtab is at its own but for what its row says:
  `fleet-planner` and splits have to be switched on. Two factors are the same for all. Rates below which a move is not worth it,
  and above which a bundle is cut, are a {MESSAGE_PARTS}th (messages) or a {BYTE_PARTS}th (bytes) of the defaults, because these brokers
  carry some hundred messages a second. Times for which a bundle or broker is left alone are a {TIME_PARTS}th, so that they fit into a run. Pulsar's shedding interval and trimtab's
  rounds stay at one minute, and hit counts stay.
* The cluster is calm for four minutes, then something happens, and the next eight minutes are judged.
* **Balanced**: all brokers are at most {SPREAD_POINTS:g} points of usage apart, as means over half a minute, until the end. *Rates within
  {100 * SPREAD_RATIO:g} %*: no broker's message rate is farther from the mean. A dash: not within the eight minutes.
* **Publish latency** is from the client's call to the broker's answer. *Gap* is the longest time in which a consumer got nothing.
  *Redelivered* are messages that a consumer had, and had not yet acknowledged, when its bundle moved: Pulsar delivers at least once. The
  namespace deduplicates. *CPU* is of trimtab's controller, collector and executor, as a share of one core; Pulsar's balancers run inside
  the brokers. Trimtab's programs have a lower priority (`nice`), because in production they do not share a machine with brokers.

## What it cannot show

* Some hundred messages a second on one host are not a production cluster: an unload here closes a handful of topics, not thousands.
* Eight minutes favour whoever acts early; a balancer that needs eight rounds (AvgShedder's low threshold) hardly has time to.
* trimtab has watched the cluster for three or four rounds when something happens, and knows little of its noise: a controller that has
  run for an hour is sure earlier.
* In `leave`, the placement of Pulsar's modular manager leaves brokers some 15 points apart, which is the limit here: chance decides on
  which side of it a run is, and so its time out of balance.
* CPU, memory and disks play no part; with them the balancers would see other usage.
* The limit of {SPREAD_POINTS:g} points is the one that AvgShedder and the fleet planner aim at. ThresholdShedder acts from 10 points above
  the mean, TransferShedder from a standard deviation of 25 points, which `hot-broker` does not reach: it is not broken if it does nothing
  there.
* The fleet planner was mended after what earlier runs of these scenarios showed, and ran again. So it knows them, unlike the seeds of
  [simulations](simulations.md).
* Two seeds are few: a difference of {EQUAL_UNLOADS} unload, {EQUAL_S} seconds or {EQUAL_PUBLISHES} publishes counts as none below the tables.
"""


def write(rows: Sequence[Row]) -> None:
    """Write the page and a picture for each scenario that has rows."""
    parts = [_HEAD]
    for scenario in SCENARIOS.values():
        its = [row for row in rows if row["scenario"] == scenario.name]
        if its:
            picture = DOCS / f"comparison-{scenario.name}.svg"
            _draw(scenario, its, picture)
            parts.append(_section(scenario, its, picture.name))
    parts.append(_foot(rows))
    PAGE.write_text("\n".join(parts))


def _section(scenario: Scenario, rows: Sequence[Row], picture: str) -> str:
    lines = [
        f"## {scenario.name}",
        "",
        f"{scenario.text} Means over the seeds that ran.",
        "",
        f"![Usage of each broker under each balancer]({picture})",
        "",
        "|  | runs | " + " | ".join(title for title, _ in _COLUMNS) + " |",
        "|---|--:|" + "--:|" * len(_COLUMNS),
    ]
    for name, balancer in BALANCERS.items():
        its = [row for row in rows if row["balancer"] == name]
        if not its:
            continue
        cells = [_cell(its, key) for _, key in _COLUMNS]
        lines.append(f"| {balancer.text} | {len(its)} | " + " | ".join(cells) + " |")
    same = "The fleet planner split nothing here, so it does the same with splits off.\n\n"
    return "\n".join([*lines, "", (same if _splits_nothing(rows) else "") + _standing(rows), ""])


def _splits_nothing(rows: Sequence[Row]) -> bool:
    """Whether the fleet planner split nothing in a scenario, so that its rows are those with splits off, too."""
    its = [row for row in rows if row["balancer"] == PLANNER]
    return bool(its) and not any(row["splits"] for row in its)


def _standing(rows: Sequence[Row]) -> str:
    """Who does better than the fleet planner among those that balance."""
    others = [name for name in BALANCERS if name not in {"nobody", PLANNER}]
    pairs = {name: pair for name in others if (pair := _of_the_same_seeds(rows, name))}
    if not pairs:
        return ""
    parts = []
    for title, key, equal in _JUDGED:
        better = []
        for name, (its, ours) in pairs.items():
            its_mean, our_mean = _mean(its, key), _mean(ours, key)
            if its_mean < our_mean - equal:
                longer = _mean(its, "unbalanced_s") > _mean(ours, "unbalanced_s") + EQUAL_S
                better.append(
                    f"{_figure(its_mean)} of `{name}` against {_figure(our_mean)}"
                    + (f", but `{name}` was out of balance for longer" if longer else "")
                )
        parts.append(f"* {title}: {'; '.join(better) or 'no one'}.")
    return (
        "**Who did better than the fleet planner**, in the runs of the seeds that both have:\n\n"
        + "\n".join(parts)
    )


def _of_the_same_seeds(rows: Sequence[Row], name: str) -> tuple[list[Row], list[Row]] | None:
    """The rows of a balancer and of the fleet planner, of the seeds that both ran; None without such a seed."""
    by_seed, ours_by_seed = (
        {row["seed"]: row for row in rows if row["balancer"] == who} for who in (name, PLANNER)
    )
    both = sorted(by_seed.keys() & ours_by_seed.keys())
    return ([by_seed[seed] for seed in both], [ours_by_seed[seed] for seed in both]) if both else None


def _cell(rows: Sequence[Row], key: str) -> str:
    """The mean; a dash where not every run has a value."""
    return _figure(_mean(rows, key)) if all(_value(row, key) is not None for row in rows) else "-"


def _mean(rows: Sequence[Row], key: str) -> float:
    return mean(_value(row, key) for row in rows)


def _value(row: Row, key: str) -> Any:
    return row["unbalanced_ratio"] * row["window_s"] if key == "unbalanced_s" else row[key]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def _foot(rows: Sequence[Row]) -> str:
    machines = sorted({row["machine"] for row in rows})
    commits = sorted({row["commit"] for row in rows})
    done = set(map(cell_of, rows))
    unsplit = {
        name for name in SCENARIOS if _splits_nothing([row for row in rows if row["scenario"] == name])
    }
    missing = []
    for seed in SEEDS:
        for name in BALANCERS:
            left = [
                scenario
                for scenario in SCENARIOS
                if (scenario, name, seed) not in done and not (name == WITHOUT_SPLITS and scenario in unsplit)
            ]
            if left:
                which = "every scenario" if len(left) == len(SCENARIOS) else ", ".join(left)
                missing.append(f"* `{name}` with seed {seed}: {which}.")
    not_run = "Not run yet:\n\n" + "\n".join(missing) if missing else "Every cell was run."
    dates = sorted(row["on"] for row in rows)
    at_once = max(row["at_once"] for row in rows)
    beside = "" if at_once == 1 else f", up to {at_once} at a time, each in a network of its own"
    slowed = ["/".join(map(str, cell_of(row))) for row in rows if row.get("beside_trimtab")]
    slower = f" Beside another trimtab, so that publishes were slower: {', '.join(slowed)}." if slowed else ""
    when = f"on {dates[0]}" if dates[0] == dates[-1] else f"from {dates[0]} to {dates[-1]}"
    return f"## Made\n\n{len(rows)} runs {when} on {'; '.join(machines)}{beside}, at {', '.join(commits)}.{slower} {not_run}\n"


def cell_of(row: Row) -> tuple[str, str, int]:
    """Scenario, balancer and seed of a row."""
    return row["scenario"], row["balancer"], row["seed"]


def _draw(scenario: Scenario, rows: Sequence[Row], file: Path) -> None:
    """Usage of each broker over time: balancers as rows, seeds as columns; a mark where bundles left a broker, with their count.

    A seed that most of them have not run yet is left out.
    """
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "trimtab"
    names = [name for name in BALANCERS if any(row["balancer"] == name for row in rows)]
    runs = Counter(row["seed"] for row in rows)
    seeds = [seed for seed in SEEDS if 2 * runs[seed] > len(names)]
    figure = Figure(figsize=(4.2 * len(seeds) + 1, 1.35 * len(names) + 0.6), layout="constrained")
    axes = figure.subplots(len(names), len(seeds), sharex=True, sharey=True, squeeze=False)
    for across, seed in enumerate(seeds):
        axes[0][across].set_title(f"{scenario.name}, seed {seed}", fontsize=9)
        axes[-1][across].set_xlabel("seconds", fontsize=8)
        for down, name in enumerate(names):
            found = [row for row in rows if (row["balancer"], row["seed"]) == (name, seed)]
            _draw_run(axes[down][across], found)
            axes[down][0].set_ylabel(
                name.replace("trimtab-", "trimtab\n").replace("-shedder", "-\nshedder"), fontsize=7
            )
    figure.supylabel("usage of each broker in percent", fontsize=8)
    figure.savefig(file, metadata={"Date": None, "Creator": None})


def _draw_run(axes: Axes, found: Iterable[Row]) -> None:
    axes.tick_params(labelsize=7)
    axes.set_ylim(0, 110)
    axes.axvline(0, color="#999999", linewidth=0.8)
    for row in found:
        series = row["series"]
        seconds, usage = series["seconds"], series["usage_points"]
        for number, points in enumerate(usage):
            smooth = [_smoothed(points, place) for place in range(len(points))]
            axes.plot(seconds, smooth, linewidth=1.2, color=f"C{number}")
        unloads = Counter(
            (second // 5 * 5, source)
            for second, source, _, is_forced in series["moves"]
            if not is_forced and second > 0
        )
        for (second, source), count in unloads.items():
            place = min(range(len(seconds)), key=lambda at: abs(seconds[at] - second))
            height = min(_smoothed(usage[source - 1], place), 95)
            color = f"C{source - 1}"
            axes.plot([second], [height], marker="v", markersize=4, color=color, linestyle="")
            axes.annotate(
                f"{count}", (second, height), (3, 3), textcoords="offset points", fontsize=7, color=color
            )


def _smoothed(points: Sequence[float | None], place: int) -> float:
    """The mean over a quarter of a minute; NaN while the broker does not run."""
    if points[place] is None:
        return math.nan
    values = [point for point in points[max(0, place - 2) : place + 1] if point is not None]
    return mean(values)
