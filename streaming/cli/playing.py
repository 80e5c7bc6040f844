"""What ``trimtab simulate`` and ``backtest`` share: parallel runs with a progress bar, and the score card as a table."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from streaming.cli.output import progress
from streaming.process.exits import WrongUse

if TYPE_CHECKING:
    from streaming.simulator.score import Column, Figures

RunT = TypeVar("RunT")


def _can_write(_ctx: click.Context, _option: click.Parameter, page: Path | None) -> Path | None:
    """The page's path; raises ``WrongUse`` before the first run where it could not be written after the last."""
    if page is not None and find_spec("plotly") is None:
        raise WrongUse('--html needs plotly, which is not installed: pip install "trimtab[pages]"')
    return page


html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_can_write,
    help="Write a page with plots; needs `trimtab[pages]`.",
)


configs_option = click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file to compare; more than one may be given.",
)
processes_option = click.option(
    "--processes", type=click.IntRange(1), help="Number of parallel runs.  [default: one per processor]"
)


def name_configs(configs: Sequence[Path]) -> list[tuple[str, Path]]:
    """Each file with its stem, or with its whole path where stems are equal."""
    is_clear = len({path.stem for path in configs}) == len(configs)
    return [(path.stem if is_clear else str(path), path) for path in configs]


def write_page(file: Path, page: str) -> None:
    """Write the page, and say so."""
    file.write_text(page, encoding="utf-8")
    click.echo(f"page written to {file}", err=True)


def play_with_progress(
    jobs: Sequence[Callable[[], RunT]], processes: int | None, *, label: str
) -> list[RunT]:
    """The result of every job, in their order."""
    from streaming.simulator.runs import play_all  # noqa: PLC0415  see `commands`

    with progress(len(jobs), label) as advance:
        return play_all(jobs, processes, advance)


def card_table(title: str, rows: "dict[str, Figures]", columns: "Sequence[Column]") -> str:
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
