"""``python -m deploy.grafana [--check]``: write the dashboards, or say which of them are stale."""

import sys
from pathlib import Path

import click
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana import cluster, overview, programs, reassignments

DASHBOARDS = Path(__file__).with_name("dashboards")


def render() -> dict[str, str]:
    """The JSON of every dashboard, by file name."""
    builders = (
        overview.build,
        cluster.build,
        reassignments.build,
        programs.build_programs,
        programs.build_application,
    )
    boards = [build() for build in builders]
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    return {f"{board.uid}.json": encoder.encode(board) + "\n" for board in boards}


def problems(pages: dict[str, str], folder: Path) -> list[str]:
    """One line for each dashboard that is missing, stale or surplus."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    surplus = [f"{folder / name} is surplus: nothing generates it" for name in sorted(there.keys() - pages)]
    missing = [f"{folder / name} is missing" for name in pages if name not in there]
    stale = [f"{folder / name} is stale" for name, text in pages.items() if there.get(name, text) != text]
    return missing + stale + surplus


def write(pages: dict[str, str], folder: Path) -> None:
    """Write the dashboards, and remove those that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a dashboard is missing or stale.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DASHBOARDS,
    help="Folder of the dashboards (default: deploy/grafana/dashboards).",
)
def main(*, check: bool, folder: Path) -> None:
    """Write the dashboards anew."""
    pages = render()
    if not check:
        write(pages, folder)
        click.echo(f"{len(pages)} dashboards written to {folder}")
        return
    found = problems(pages, folder)
    for problem in found:
        click.echo(problem, err=True)
    if found:
        click.echo("Run: make docs", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
