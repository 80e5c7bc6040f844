"""``python -m deploy.helm [--check]``: write the schema of the chart's values, or say that it is stale."""

import sys

import click

from deploy.helm.schema import SCHEMA, render


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the schema is missing or stale.")
def main(*, check: bool) -> None:
    """Write values.schema.json anew."""
    text = render()
    if not check:
        SCHEMA.write_text(text, encoding="utf-8")
        click.echo(f"{SCHEMA} written")
    elif not SCHEMA.is_file() or SCHEMA.read_text(encoding="utf-8") != text:
        click.echo(f"{SCHEMA} is missing or stale\nRun: make docs", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
