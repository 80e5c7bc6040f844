"""``python -m streaming.docs [--check]``: write the generated documentation, or say what of it is stale."""

import sys
from pathlib import Path

import click

from streaming.docs.pages import problems, render, write

REPOSITORY = Path(__file__).resolve().parents[2]


@click.command()
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 if a page is missing, stale or surplus."
)
def main(*, check: bool) -> None:
    """Write the generated pages of docs/ anew."""
    docs = REPOSITORY / "docs"
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
