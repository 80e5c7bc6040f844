"""``trimtab run``: the long-running controller."""

import time

import click

from streaming.cli.options import (
    begin_of,
    example,
    input_option,
    metrics_port_option,
    output_option,
    setting_option,
    verbose_option,
    with_settings,
)
from streaming.process.logs import log_to_stderr
from streaming.settings import Settings
from streaming.transport.errors import StartWith
from streaming.transport.side import Begin


@click.command(
    "run", epilog=example("trimtab run --input kafka://broker:9092 --checkpoint /var/lib/trimtab/checkpoint")
)
@with_settings(
    setting_option(
        "controller.mode", "--mode", type=click.Choice(["dry-run", "act"]), help="Overrides controller.mode."
    ),
    setting_option("controller.name", "--name", help="Overrides controller.name."),
    input_option("Where load reports are read: kafka://host:port[,…] or pulsar://…."),
    output_option(
        "Where decisions are written, kafka://… or pulsar://…, whatever the input is; the input's if not given."
    ),
    setting_option(
        "controller.standby",
        "--standby/--no-standby",
        default=None,
        help="Overrides controller.standby: wait, warm, while another controller of this name leads, and take over from it.",
    ),
    setting_option("spark.checkpoint", "--checkpoint", metavar="DIR", help="Overrides spark.checkpoint."),
    setting_option(
        "spark.master", "--master", metavar="URL", help="Overrides spark.master, e.g. spark://host:7077."
    ),
    metrics_port_option("metrics.port"),
)
@click.option(
    "--from",
    "begin",
    metavar="earliest|latest|TIME",
    help="Where a first start reads the input from; TIME is RFC 3339.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Start over: put the checkpoint aside, forget the marker, averages, hit counts, cooldowns, budgets and actions in flight.",
)
@click.option(
    "--skip-lost",
    is_flag=True,
    help="Go on although the input lost records that were not read yet: no round ever sees them; the audit topic says which.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Trust the checkpoint although the marker disagrees: what was published after it may be published again.",
)
@verbose_option
def run_command(
    settings: Settings, begin: str | None, *, fresh: bool, skip_lost: bool, adopt: bool, verbose: bool
) -> None:
    """Read load reports, decide round by round, publish the decisions exactly once.

    Runs until SIGTERM or Ctrl-C, which finish the batch in progress first.
    """
    if fresh and adopt:
        raise click.UsageError("--fresh and --adopt exclude each other: give one of them")
    if fresh and skip_lost:
        raise click.UsageError(
            "--fresh and --skip-lost exclude each other: a fresh start has no lost records to skip"
        )
    _refuse_for_standby(settings, fresh=fresh, adopt=adopt, skip_lost=skip_lost)
    log_to_stderr(settings.controller.log_format, verbose=verbose)
    first: Begin = round((time.time() - settings.controller.warm_start_s) * 1000)
    if begin is not None:
        first = begin_of(begin)

    from streaming.controller.application import Application  # noqa: PLC0415  Spark takes a second to import

    start_with: StartWith = "fresh" if fresh else "adopt" if adopt else "checkpoint"
    Application(settings, begin=first, start_with=start_with, skip_lost=skip_lost).run()


def _refuse_for_standby(settings: Settings, **choices: bool) -> None:
    """Refuse options that a person gives for a start now: a standby takes over later, when nobody is watching."""
    given = [f"--{name.replace('_', '-')}" for name, is_given in choices.items() if is_given]
    if settings.controller.standby and given:
        raise click.UsageError(
            f"{given[0]} is for a start that leads at once: add --no-standby (controller.standby is true)"
        )
