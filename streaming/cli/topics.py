"""``trimtab topics``: make the topics as they must be."""

import click

from streaming.cli.options import Whole, example, settings_options
from streaming.process.exits import Refused, raised_as
from streaming.settings import Settings
from streaming.transport.errors import StartError


@click.group("topics")
def topics_command() -> None:
    """Make and check the topics."""


@topics_command.command(
    "create",
    short_help="Make the topics that are missing.",
    epilog=example("trimtab topics create --input kafka://broker:9092"),
)
@settings_options
@click.option(
    "--input-partitions",
    type=Whole(min=1),
    default=1,
    show_default=True,
    help="Partitions of the input topic.",
)
def create_command(settings: Settings, input_partitions: int) -> None:
    """Make the topics that are missing, with the partitions, timestamps, retention, compaction and record size that they need.

    Existing topics are never altered, except for deduplication on Pulsar, which is switched on where it is needed; each
    difference is named with the command that corrects it, and the exit code is then 5.
    """
    from streaming.systems import create_all  # noqa: PLC0415  a broker's client is loaded when needed

    with raised_as(Refused, StartError):
        outcomes = create_all(settings, input_partitions=input_partitions)
    for outcome in outcomes:
        click.echo(f"{outcome.topic}: {outcome.outcome}")
    problems = [str(found) for outcome in outcomes for found in outcome.differences]
    if problems:
        raise Refused("\n".join(problems))
