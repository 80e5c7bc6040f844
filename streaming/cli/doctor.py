"""``trimtab doctor``: everything a person would look at first, and what to do about it."""

from typing import TYPE_CHECKING

import click
import msgspec

from streaming.cli.configured import settings_options
from streaming.cli.options import example
from streaming.cli.output import format_option, render
from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.cli.diagnosis import Finding


@click.command("doctor", epilog=example("trimtab doctor --input kafka://broker:9092"))
@settings_options
@format_option("JSON and YAML are a list with one object per finding.")
@click.pass_context
def doctor_command(context: click.Context, settings: Settings, form: str) -> None:
    """Look at brokers, permissions, topics, clocks, checkpoint, marker, leader, reports and other balancers.

    Each finding says what is wrong and what to do. It only reads: it disturbs no controller and changes nothing, and
    ends within a minute. Give it the settings of the controller, on the controller's machine where that is possible.

    The exit code is 0 without a problem, 5 with one, and 6 where brokers do not answer and nothing else is wrong.
    """
    from streaming.cli.diagnosis import (  # noqa: PLC0415  the same
        exit_code_of,
        gather_facts,
        judge,
        report_text,
    )

    findings: list[Finding] = judge(gather_facts(settings))
    click.echo(
        report_text(findings) if form == "table" else render(msgspec.to_builtins(findings), form), nl=False
    )
    context.exit(exit_code_of(findings))
