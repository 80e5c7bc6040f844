"""``python -m deploy.docs [--check]``: write the generated documentation, or say what of it is stale."""

import sys
from pathlib import Path

import click

from deploy.docs.pages import problems, render, write

REPOSITORY = Path(__file__).resolve().parents[2]


@click.command()
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 if a page is missing, stale or surplus."
)
@click.option(
    "--docs",
    type=click.Path(file_okay=False, path_type=Path),
    default=REPOSITORY / "docs",
    help="Folder of the pages (default: docs/ of the clone).",
)
def main(*, check: bool, docs: Path) -> None:
    """Write the generated pages of docs/ anew."""
    pages = render(REPOSITORY)
    if not check:
        write(pages, docs)
        click.echo(f"{len(pages)} pages written to {docs}")
        return
    found = problems(pages, docs)
    for problem in found:
        click.echo(problem, err=True)
    if found:
        click.echo("Run: make docs", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
