"""``trimtab backtest``: what settings would have done to a recorded cluster, before it gets them."""

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from policies.shedding.registry import POLICIES
from state.outputs import rfc3339
from streaming.cli.options import begin_of, example, moment_of, read_settings
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
from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.controller.replay import RecordedEvents
    from streaming.simulator.backtest import Survey
    from streaming.simulator.differences import Backtest

_ADDRESSES = ("kafka://", "pulsar://", "pulsar+ssl://")
_EXAMPLE = "trimtab backtest --config now.toml --config candidate.toml --html page.html month/"


class _Chosen(NamedTuple):
    """Settings to compare, under a name."""

    name: str
    settings: Settings


@click.command("backtest", epilog=example(_EXAMPLE))
@configs_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([policy.name for policy in POLICIES]),
    help="Policy to compare; all other settings come from --config. More than one may be given.",
)
@click.option("--from", "since", metavar="TIME", help="Leave out reports before this time; RFC 3339.")
@click.option("--to", "until", metavar="TIME", help="Leave out reports from this time on.")
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
@html_option
@processes_option
@format_option("Score card and differences.")
@click.argument("sources", nargs=-1, required=True, metavar="RECORDING...|kafka://...|pulsar://...")
def backtest_command(
    configs: tuple[Path, ...],
    policies: tuple[str, ...],
    since: str | None,
    until: str | None,
    loop: str,
    recorded_moves: str,
    html: Path | None,
    processes: int | None,
    form: str,
    sources: tuple[str, ...],
) -> None:
    """Replay recorded reports of a real cluster under several settings or policies, and count what each would have done.

    A recording is a file of `trimtab record`, a folder of them, or what is on the input topic. The controller is the same one that
    runs live. Nothing is written to a broker. The control events of operators and the results of executors are left out.
    """
    from streaming.controller.replay import RecordedEvents  # noqa: PLC0415  see `commands`

    address = next((source for source in sources if source.startswith(_ADDRESSES)), None)
    chosen = _candidates(configs, policies, {"input.url": address})
    with _files(sources, address, chosen[0].settings, since) as files:
        recorded = RecordedEvents(
            files=files,
            since_ms=None if since is None else moment_of(since, "--from"),
            until_ms=None if until is None else moment_of(until, "--to"),
            max_record_bytes=chosen[0].settings.controller.max_record_bytes,
        )
        try:
            found = _backtest(recorded, chosen, sources, loop, processes, keeps=recorded_moves == "keep")
        except _reading_errors() as error:
            raise WrongUse(f"{', '.join(sources)}: {error}") from error
    if html is not None:
        from streaming.simulator.page import render_backtest_page  # noqa: PLC0415  the plotting library takes a second

        write_page(html, render_backtest_page(found))
    _show(found, form)


def _candidates(
    configs: Sequence[Path], policies: Sequence[str], flags: Mapping[str, object]
) -> list[_Chosen]:
    """A candidate for each file; with policies, one for each file and policy."""
    if not policies:
        found = [_Chosen(name, read_settings(path, flags)) for name, path in name_configs(configs)]
        found = found or [_Chosen("default settings", read_settings(Path(os.devnull), flags))]
    else:
        files = name_configs(configs or [Path(os.devnull)])
        found = [
            _Chosen(
                policy if len(files) == 1 else f"{name}, {policy}",
                read_settings(path, {**flags, "pulsar.shedding_policy": policy}),
            )
            for name, path in files
            for policy in policies
        ]
    if len({each.name for each in found}) < len(found):
        raise WrongUse(f"two candidates are the same: {', '.join(sorted(each.name for each in found))}")
    return found


@contextmanager
def _files(
    sources: Sequence[str], address: str | None, settings: Settings, since: str | None
) -> Iterator[tuple[str, ...]]:
    """The files to read; what is on a topic is recorded first."""
    from streaming.controller.replay import NoRecording, files_of  # noqa: PLC0415  see `commands`

    if address is not None:
        if len(sources) > 1:
            raise WrongUse(
                f"{', '.join(sources)}: give one address, or files; a backtest reads one recording"
            )
        from streaming.cli.recordings import record_for_now  # noqa: PLC0415  see `commands`

        with record_for_now(settings, begin_of(since or "earliest")) as (file, count):
            click.echo(f"{count} records read from {address}", err=True)
            yield (file,)
        return
    missing = [source for source in sources if not Path(source).exists()]
    if missing:
        raise WrongUse(f"{', '.join(missing)}: neither a recording nor kafka://… nor pulsar://…")
    try:
        files = files_of(sources)
    except NoRecording as error:
        raise WrongUse(str(error)) from error
    yield files


def _reading_errors() -> tuple[type[Exception], ...]:
    from streaming.controller.recording import BadRecording  # noqa: PLC0415  see `commands`
    from streaming.simulator.backtest import NoFleet  # noqa: PLC0415

    return NoFleet, BadRecording, gzip.BadGzipFile, EOFError, zlib.error


def _backtest(
    recorded: "RecordedEvents",
    chosen: Sequence[_Chosen],
    sources: Sequence[str],
    loop: str,
    processes: int | None,
    *,
    keeps: bool,
) -> "Backtest":
    from streaming.simulator import backtest  # noqa: PLC0415  see `commands`
    from streaming.simulator.differences import backtest_of  # noqa: PLC0415

    surveys = backtest.survey(recorded())
    jobs = [
        job
        for each in surveys.values()
        for job in backtest.jobs_of(
            recorded,
            each,
            chosen,
            closed=loop != "open",
            opened=loop != "closed",
            keeps_recorded_moves=keeps,
        )
    ]
    results = play_with_progress(jobs, processes, label="backtest")
    closed = [each for each in results if not isinstance(each, backtest.Opened)]
    opened = [each for each in results if isinstance(each, backtest.Opened)]
    return backtest_of(_describe_input(list(surveys.values()), sources), list(surveys), closed, opened)


def _describe_input(surveys: "Sequence[Survey]", sources: Sequence[str]) -> str:
    reports_count = sum(each.reports_count for each in surveys)
    first, last = min(each.first_ms for each in surveys), max(each.last_ms for each in surveys)
    return (
        f"{reports_count:,} load reports of {', '.join(each.cluster for each in surveys)}, {rfc3339(first)} to {rfc3339(last)}, "
        f"from {', '.join(sources)}"
    )


def _show(found: "Backtest", form: str) -> None:
    from streaming.simulator.differences import RECORDED_COLUMNS, open_text, tree_of, verdict  # noqa: PLC0415
    from streaming.simulator.score import card  # noqa: PLC0415

    if form != "table":
        click.echo(render(tree_of(found), form), nl=False)
        return
    click.echo(f"{found.sources}\n")
    for cluster, rows in list(card(found.closed).items())[1:]:
        click.echo(card_table(f"{cluster}, closed loop", rows, RECORDED_COLUMNS))
        click.echo(f"{verdict(rows)}\n")
    click.echo(open_text(found), nl=False)
