"""``trimtab simulate``: see what settings do to a fleet that does not exist, before a real one gets them."""

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from policies.shedding.registry import POLICIES
from streaming.cli.options import read_settings
from streaming.cli.output import format_option, render
from streaming.cli.playing import (
    card_table,
    configs_option,
    html_option,
    name_configs,
    play_with_progress,
    processes_option,
    write_page,
)
from streaming.process.exits import WrongUse
from streaming.settings import ClusterSettingsSource, ControllerSettings
from streaming.simulator.scenarios import SCENARIOS, find_scenario, limit_hours
from streaming.simulator.setup import SESSIONS_COUNT

if TYPE_CHECKING:
    from streaming.simulator.runs import Candidate
    from streaming.simulator.score import Run
    from streaming.simulator.setup import Build

_FIRST_POLICIES = ("avg-shedder", "fleet-planner")
_ALL = "all"
_LARGE = "large-fleet"


def _scenarios_help() -> str:
    width = max(len(each.name) for each in SCENARIOS)
    return "\n".join(["\b", "Scenarios:", *(f"  {each.name:{width}}  {each.summary}" for each in SCENARIOS)])


_EPILOG = f"""
{_scenarios_help()}

\b
Example:
  trimtab simulate --scenario scale-out --seeds 5 --config now.toml --config candidate.toml --html page.html
"""


@click.command("simulate", epilog=_EPILOG)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=click.Choice([_ALL, *(each.name for each in SCENARIOS)]),
    help="What happens to the fleet; more than one may be given.  [default: one-hot-broker]",
)
@click.option(
    "--from",
    "recording",
    type=click.Path(exists=True),
    help="Start from the fleet of a recording of `trimtab record` instead: brokers, bundles, traffic and noise.",
)
@configs_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([policy.name for policy in POLICIES]),
    help=f"Policy to compare; all other settings are the defaults, with `[pulsar.capacity] sessions_count` of these brokers. More than one may be given.  [default: {', '.join(_FIRST_POLICIES)}]",
)
@click.option(
    "--seeds",
    "seeds_count",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Number of runs of each.",
)
@click.option(
    "--first-seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the first run."
)
@click.option(
    "--hours", type=click.FloatRange(0.5, 168), help="Simulated hours, instead of those of the scenario."
)
@html_option
@processes_option
@format_option("Score card.")
def simulate_command(
    names: tuple[str, ...],
    recording: str | None,
    configs: tuple[Path, ...],
    policies: tuple[str, ...],
    seeds_count: int,
    first_seed: int,
    hours: float | None,
    html: Path | None,
    processes: int | None,
    form: str,
) -> None:
    """Balance a simulated fleet under several settings or policies, and count what each does.

    The controller is the one that runs live, with all its guards and budgets, in mode act. It is compared with no balancer at all, and
    with one that knows the true load. The same seeds give the same figures. Nothing is read from or written to a broker.
    """
    from streaming.simulator.runs import NOBODY, PERFECT, jobs_of  # noqa: PLC0415  see `commands`

    if recording is not None and names:
        raise WrongUse("--from and --scenario: a fleet is either recorded or made up; leave one of them out")
    candidates = _candidates(configs, policies)
    chosen = _read_recording(recording) if recording is not None else _find_scenarios(names)
    jobs = jobs_of(
        [(name, build if hours is None else limit_hours(build, hours)) for name, build, _ in chosen],
        range(first_seed, first_seed + seeds_count),
        [NOBODY, *candidates, PERFECT],
    )
    runs = play_with_progress(jobs, processes, label="simulate")
    if html is not None:
        from streaming.simulator.page import render_page  # noqa: PLC0415  the plotting library takes a second

        write_page(html, render_page(runs, {name: summary for name, _, summary in chosen}))
    _show(runs, form)


def _candidates(configs: Sequence[Path], policies: Sequence[str]) -> "list[Candidate]":
    from streaming.simulator.runs import Candidate  # noqa: PLC0415  see `commands`

    found = [
        Candidate(name=name, settings=ClusterSettingsSource(read_settings(path, {})))
        for name, path in name_configs(configs)
    ]
    for policy in policies or (() if configs else _FIRST_POLICIES):
        flags = {"pulsar.shedding_policy": policy, "pulsar.capacity.sessions_count": SESSIONS_COUNT}
        settings = read_settings(Path(os.devnull), flags)
        found.append(Candidate(name=policy, settings=ClusterSettingsSource(settings)))
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise WrongUse(f"two candidates have the same name: {', '.join(sorted(names))}")
    return found


def _find_scenarios(names: Sequence[str]) -> "list[tuple[str, Build, str]]":
    wanted = names or ("one-hot-broker",)
    if _ALL in wanted:
        return [(each.name, each.build, each.summary) for each in SCENARIOS]
    found = [scenario for name in dict.fromkeys(wanted) if (scenario := find_scenario(name)) is not None]
    return [(each.name, each.build, each.summary) for each in found]


def _read_recording(file: str) -> "list[tuple[str, Build, str]]":
    from streaming.controller.recording import BadRecording  # noqa: PLC0415  see `commands`
    from streaming.controller.replay import NoRecording, RecordedEvents, files_of  # noqa: PLC0415
    from streaming.simulator.backtest import NoFleet  # noqa: PLC0415
    from streaming.simulator.recorded import recorded_fleets  # noqa: PLC0415

    try:
        events = RecordedEvents(
            files=files_of([file]), max_record_bytes=ControllerSettings().max_record_bytes
        )
        fleets = recorded_fleets(events())
    except (NoFleet, NoRecording, BadRecording, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WrongUse(f"{file}: {error}") from error
    return [(name, fleet, f"the fleet of {name}, from {file}") for name, fleet in fleets.items()]


def _show(runs: "Sequence[Run]", form: str) -> None:
    from streaming.simulator.score import COLUMNS, card  # noqa: PLC0415  see `commands`

    figures = card(runs)
    if form != "table":
        scores = [
            {
                "scenario": run.scenario,
                "seed": run.seed,
                "candidate": run.candidate,
                **msgspec.to_builtins(run.score),
            }
            for run in runs
        ]
        click.echo(render({"means": figures, "runs": scores}, form), nl=False)
        return
    single = len(figures) == 2  # noqa: PLR2004  all scenarios, and one
    for scenario, rows in list(figures.items())[1 if single else 0 :]:
        click.echo(card_table(scenario, rows, COLUMNS))
