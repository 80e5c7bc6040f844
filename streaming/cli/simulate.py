"""``trimtab simulate`` and ``backtest``: what settings do to a fleet that does not exist, or would have done to a recorded cluster."""

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from policies.shedding.registry import POLICIES
from policies.wording import counted, time_text
from state.outputs import rfc3339
from state.overlay import epoch_ms
from streaming.cli.options import TIME_HELP, Moment, OneOf, Whole, example, read_settings
from streaming.cli.output import format_option, progress, render
from streaming.process.exits import WrongUse, raised_as, words_of
from streaming.process.stop_signals import interrupted_by_sigterm
from streaming.settings import ClusterSettingsSource, ControllerSettings, Settings
from streaming.simulator.scenarios import BY_NAME, SCENARIOS, limit_hours
from streaming.simulator.setup import SESSIONS_COUNT

if TYPE_CHECKING:
    from streaming.controller.replay import RecordedEvents
    from streaming.simulator.backtest import Survey
    from streaming.simulator.differences import Backtest
    from streaming.simulator.runs import Candidate
    from streaming.simulator.score import Column, Figures, Run
    from streaming.simulator.setup import Build

_FIRST_POLICIES = ("avg-shedder", "fleet-planner")
_ALL = "all"
_ADDRESSES = ("kafka://", "pulsar://", "pulsar+ssl://")
_EXAMPLE = "trimtab backtest --config now.toml --config candidate.toml --html page.html month/"


def _require_plotly(_ctx: click.Context, _option: click.Parameter, page: Path | None) -> Path | None:
    """The page's path; raises ``WrongUse`` before the first run where it could not be written after the last."""
    if page is not None and find_spec("plotly") is None:
        raise WrongUse('--html needs plotly, which is not installed: pip install "trimtab[pages]"')
    return page


_html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_require_plotly,
    help="Write a page with plots; needs `trimtab[pages]`.",
)

_configs_option = click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file to compare; more than one may be given.",
)
_processes_option = click.option(
    "--processes", type=Whole(1), help="Number of parallel runs.  [default: one per processor]"
)


def _name_configs(configs: Sequence[Path]) -> list[tuple[str, Path]]:
    """Each file with its stem, or with its whole path where stems are equal."""
    is_clear = len({path.stem for path in configs}) == len(configs)
    return [(path.stem if is_clear else str(path), path) for path in configs]


def _write_page(file: Path, page: str) -> None:
    """Write the page, and say so."""
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"--html {file} cannot be written: {words_of(error)}") from error
    click.echo(f"page written to {file}", err=True)


@contextmanager
def _refuse_unreadable(sources: str) -> Iterator[None]:
    """A recording that cannot be read, or has no fleet, ends the command with a message that names it."""
    from streaming.controller.recording import BadRecording  # noqa: PLC0415  see `commands`
    from streaming.controller.replay import NoRecording  # noqa: PLC0415
    from streaming.simulator.backtest import NoFleet  # noqa: PLC0415

    try:
        yield
    except BadRecording as error:  # it names its file
        raise WrongUse(str(error)) from error
    except (NoFleet, NoRecording, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WrongUse(f"{sources}: {error}") from error


@contextmanager
def _explain_no_fleet(recorded: "RecordedEvents") -> Iterator[None]:
    """A recording without a fleet is described, so that a person sees what is wrong with it."""
    from streaming.simulator.backtest import NoFleet  # noqa: PLC0415  see `commands`

    try:
        yield
    except NoFleet as error:
        raise NoFleet(recorded.explain_lack(str(error))) from error


def _card_table(title: str, rows: "dict[str, Figures]", columns: "Sequence[Column]") -> str:
    """The score card of some candidates, with a line for each."""
    from streaming.simulator.score import show  # noqa: PLC0415  see `commands`

    width = max(len(title), *(len(name) for name in rows))
    lines = [f"{title:{width}}  " + "  ".join(each.title for each in columns)]
    lines += [
        f"{name:{width}}  "
        + "  ".join(f"{show(figures[each.key], each):>{len(each.title)}}" for each in columns)
        for name, figures in rows.items()
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


_WIDTH = max(len(each.name) for each in SCENARIOS)
_SCENARIOS = "\n".join(f"  {each.name:{_WIDTH}}  {each.summary}" for each in SCENARIOS)
_NOT_A_BACKTEST = """\
The traffic is made up anew: hours like the mean of the recording, with its noise, judged by the true load. `trimtab backtest` plays
the recorded rounds themselves, judged by what the brokers reported, so its figures for the same recording are others."""
_EPILOG = f"""
\b
Scenarios:
{_SCENARIOS}

\b
Example:
  trimtab simulate --scenario scale-out --seeds 5 --config now.toml --config candidate.toml --html page.html
"""


@click.command("simulate", epilog=_EPILOG)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=OneOf([_ALL, *(each.name for each in SCENARIOS)]),
    help="What happens to the fleet; more than one may be given.  [default: one-hot-broker]",
)
@click.option(
    "--from",
    "recording",
    type=click.Path(exists=True),
    help="Start from the fleet of a recording of `trimtab record` instead: brokers, bundles, traffic and noise.",
)
@_configs_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=OneOf([policy.name for policy in POLICIES]),
    help=f"Policy to compare. All other settings are the defaults; `[pulsar.capacity] sessions_count` is that of the simulated brokers. More than one may be given.  [default: {', '.join(_FIRST_POLICIES)}]",
)
@click.option(
    "--seeds",
    "seeds_count",
    type=Whole(1, 1000),
    default=3,
    show_default=True,
    help="Number of runs of each.",
)
@click.option("--first-seed", type=Whole(0), default=1, show_default=True, help="Seed of the first run.")
@click.option(
    "--hours", type=click.FloatRange(0.5, 168), help="Simulated hours, instead of those of the scenario."
)
@_html_option
@_processes_option
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
    from streaming.simulator.runs import NOBODY, PERFECT, jobs_of, play_all  # noqa: PLC0415  see `commands`

    if recording is not None and names:
        raise WrongUse("--from and --scenario: a fleet is either recorded or made up; leave one of them out")
    candidates = _simulated_candidates(configs, policies)
    chosen = _read_recording(recording) if recording is not None else _find_scenarios(names)
    jobs = jobs_of(
        [(name, build if hours is None else limit_hours(build, hours)) for name, build, _ in chosen],
        range(first_seed, first_seed + seeds_count),
        [NOBODY, *candidates, PERFECT],
    )
    with interrupted_by_sigterm(), progress(len(jobs), "simulate") as advance:
        runs = play_all(jobs, processes, advance)
    if html is not None:
        from streaming.simulator.page import render_page  # noqa: PLC0415  the plotting library takes a second

        summaries = {name: summary for name, _, summary in chosen}
        _write_page(html, render_page(runs, summaries, written=f"{datetime.now(UTC):%Y-%m-%d}"))
    _show_simulation(runs, form)
    if recording is not None and form == "table":
        click.echo(_NOT_A_BACKTEST)


def _simulated_candidates(configs: Sequence[Path], policies: Sequence[str]) -> "list[Candidate]":
    from streaming.simulator.runs import Candidate  # noqa: PLC0415  see `commands`

    chosen = [(name, read_settings(path, {})) for name, path in _name_configs(configs)]
    for policy in policies or (() if configs else _FIRST_POLICIES):
        flags = {"pulsar.shedding_policy": policy, "pulsar.capacity.sessions_count": SESSIONS_COUNT}
        chosen.append((policy, read_settings(Path(os.devnull), flags)))
    names = [name for name, _ in chosen]
    if len(set(names)) < len(names):
        raise WrongUse(f"two candidates have the same name: {', '.join(sorted(names))}")
    return [Candidate(name=name, settings=ClusterSettingsSource(settings)) for name, settings in chosen]


def _find_scenarios(names: Sequence[str]) -> "list[tuple[str, Build, str]]":
    wanted = dict.fromkeys(names or ("one-hot-broker",))
    found = SCENARIOS if _ALL in wanted else [BY_NAME[name] for name in wanted]
    return [(each.name, each.build, each.summary) for each in found]


def _read_recording(file: str) -> "list[tuple[str, Build, str]]":
    from streaming.controller.replay import RecordedEvents, files_of  # noqa: PLC0415  see `commands`
    from streaming.simulator.recorded import recorded_fleets  # noqa: PLC0415

    most_bytes = ControllerSettings().max_record_bytes
    with _refuse_unreadable(file):
        recorded = RecordedEvents(files=files_of([file]), max_record_bytes=most_bytes)
        with _explain_no_fleet(recorded):
            fleets = recorded_fleets(recorded())
    return [
        (name, fleet, f"a fleet like {name} in {file}, with traffic made up anew")
        for name, fleet in fleets.items()
    ]


def _show_simulation(runs: "Sequence[Run]", form: str) -> None:
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
        click.echo(_card_table(scenario, rows, COLUMNS))


@click.command("backtest", epilog=example(_EXAMPLE))
@_configs_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=OneOf([policy.name for policy in POLICIES]),
    help="Policy to compare; all other settings come from --config. More than one may be given.",
)
@click.option(
    "--from", "since", type=Moment(), metavar="TIME", help=f"Leave out reports before this time. {TIME_HELP}"
)
@click.option(
    "--to", "until", type=Moment(), metavar="TIME", help=f"Leave out reports from this time on. {TIME_HELP}"
)
@click.option(
    "--loop",
    type=click.Choice(["both", "open", "closed"]),
    default="both",
    show_default=True,
    help="open: decisions have no effect. closed: they move the recorded traffic.",
)
@click.option(
    "--recorded-moves",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="drop: bundles stay where they were first seen; for a recording in which another balancer moved them.",
)
@click.option(
    "--recorded-settings",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="keep: settings that operators made with `policy set` count for every candidate. drop: only those of --config do.",
)
@_html_option
@_processes_option
@format_option("Score card and differences.")
@click.argument("sources", nargs=-1, required=True, metavar="RECORDING...|kafka://...|pulsar://...")
def backtest_command(
    configs: tuple[Path, ...],
    policies: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    loop: str,
    recorded_moves: str,
    recorded_settings: str,
    html: Path | None,
    processes: int | None,
    form: str,
    sources: tuple[str, ...],
) -> None:
    """Replay recorded reports of a real cluster under several settings or policies, and count what each would have done.

    A recording is a file of `trimtab record`, a folder of them, or what is on the input topic. The controller is the same one that
    runs live. Nothing is written to a broker. Operators' settings count; pauses, maintenance and results of executors are left out.
    """
    from streaming.controller.replay import RecordedEvents  # noqa: PLC0415  see `commands`
    from streaming.simulator import backtest  # noqa: PLC0415
    from streaming.simulator.differences import backtest_of  # noqa: PLC0415
    from streaming.simulator.runs import play_all  # noqa: PLC0415

    address = next((source for source in sources if source.startswith(_ADDRESSES)), None)
    chosen = _backtest_candidates(configs, policies, {"input.url": address})
    own = chosen[0][1]
    with _files(sources, address, own, since) as files, _refuse_unreadable(", ".join(sources)):
        recorded = RecordedEvents(
            files=files,
            since_ms=None if since is None else epoch_ms(since),
            until_ms=None if until is None else epoch_ms(until),
            max_record_bytes=own.controller.max_record_bytes,
        )
        counts = recorded_settings == "keep"
        read = partial(backtest.with_settings, recorded, count=counts, except_policy=bool(policies))
        with _explain_no_fleet(recorded):
            surveys = list(backtest.survey(read()).values())
        jobs = [
            job
            for survey in surveys
            for job in backtest.jobs_of(
                read,
                survey,
                chosen,
                closed=loop != "open",
                opened=loop != "closed",
                keeps_recorded_moves=recorded_moves == "keep",
            )
        ]
        with interrupted_by_sigterm(), progress(len(jobs), "backtest") as advance:
            results = play_all(jobs, processes, advance)
    closed = [each for each in results if not isinstance(each, backtest.Opened)]
    opened = [each for each in results if isinstance(each, backtest.Opened)]
    settings = [
        line for survey in surveys for line in _describe_settings(survey, except_policy=bool(policies))
    ]
    found = backtest_of(
        _describe_input(surveys, sources), settings, surveys, closed, opened, [each for _, each in chosen]
    )
    if html is not None:
        from streaming.simulator.page import render_backtest_page  # noqa: PLC0415  the plotting library takes a second

        _write_page(html, render_backtest_page(found))
    _show_backtest(found, form)


def _backtest_candidates(
    configs: Sequence[Path], policies: Sequence[str], flags: Mapping[str, object]
) -> list[tuple[str, Settings]]:
    """A candidate for each file, by its name; with policies, one for each file and policy."""
    files = _name_configs(configs) or [("default settings", Path(os.devnull))]
    found = [(name, read_settings(path, flags)) for name, path in files if not policies]
    found += [
        (
            policy if len(files) == 1 else f"{name}, {policy}",
            read_settings(path, {**flags, "pulsar.shedding_policy": policy}),
        )
        for name, path in files
        for policy in policies
    ]
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise WrongUse(f"two candidates are the same: {', '.join(sorted(names))}")
    return found


@contextmanager
def _files(
    sources: Sequence[str], address: str | None, settings: Settings, since: datetime | None
) -> Iterator[tuple[str, ...]]:
    """The files to read; what is on a topic is recorded first."""
    from streaming.controller.replay import NoRecording, files_of  # noqa: PLC0415  see `commands`

    if address is None:
        missing = [source for source in sources if not Path(source).exists()]
        if missing:
            is_address = any("://" in source for source in missing)
            found = "no such address" if is_address else "no such file or folder"
            raise WrongUse(
                f"{', '.join(missing)}: {found}; give a recording of `trimtab record`, a folder of them, kafka://… or pulsar://…"
            )
        with raised_as(WrongUse, NoRecording):
            files = files_of(sources)
        yield files
        return
    if len(sources) > 1:
        raise WrongUse(f"{', '.join(sources)}: give one address, or files; a backtest reads one recording")

    from streaming.cli.recordings import record_for_now  # noqa: PLC0415  see `commands`

    with record_for_now(settings, "earliest" if since is None else epoch_ms(since)) as (file, count):
        click.echo(f"{counted(count, 'record')} read from {address}", err=True)
        yield (file,)


def _describe_input(surveys: "Sequence[Survey]", sources: Sequence[str]) -> str:
    from streaming.simulator.differences import describe_fleet  # noqa: PLC0415  see `commands`

    return f"{'; '.join(map(describe_fleet, surveys))}, from {', '.join(sources)}"


def _describe_settings(survey: "Survey", *, except_policy: bool) -> Iterator[str]:
    """A line with the settings that operators made in a cluster; none where they made none that count."""
    from streaming.cli.control import overlay_lines  # noqa: PLC0415  see `commands`

    began = [event for event in survey.controls if event.time_ms <= survey.first_ms][-1:]
    later = [event for event in survey.controls if survey.first_ms < event.time_ms <= survey.last_ms]
    made = [
        (time_text(rfc3339(event.time_ms)), ", ".join(overlay_lines(event.data.settings)))
        for event in (*began, *later)
    ]
    changes = [
        f"{text or 'what the file says again'} from {time}"
        for (_, before), (time, text) in pairwise([("", ""), *made])
        if text != before
    ]
    if changes:
        told = (
            f"{survey.cluster}: settings made by `policy set` count for every candidate: {'; '.join(changes)}"
        )
        yield told + (" (--policy is in place of pulsar.shedding_policy)" if except_policy else "")


def _show_backtest(found: "Backtest", form: str) -> None:
    from streaming.simulator.differences import RECORDED_COLUMNS, open_text, tree_of  # noqa: PLC0415
    from streaming.simulator.score import card  # noqa: PLC0415

    if form != "table":
        click.echo(render(tree_of(found), form), nl=False)
        return
    click.echo("\n".join([found.sources, *found.settings, ""]))
    for cluster, rows in list(card(found.closed).items())[1:]:
        click.echo(_card_table(f"{cluster}, closed loop", rows, RECORDED_COLUMNS))
        click.echo("\n".join([*found.verdict(cluster), ""]))
    click.echo(open_text(found), nl=False)
