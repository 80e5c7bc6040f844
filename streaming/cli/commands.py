"""``trimtab``: the command line. A command is imported when it is called, so that it does not wait for the imports of others.

Nothing here loads Spark or a broker's client; a command does when it needs them.
"""

import platform
import threading
from importlib import import_module
from typing import NamedTuple

import click
from click.exceptions import NoSuchCommand

from streaming.process.stop_signals import stop_requests_kept

_EPILOG = """
\b
Exit codes: 0 done · 1 unforeseen failure · 2 wrong options or settings
            3 the plan would never end, or misses its deadline
            4 another controller of this name took over
            5 what trimtab works with does not allow it: brokers, topics,
              checkpoint, a disk, a port; or doctor found a problem
            6 the brokers or the checkpoint's store did not answer in time
            7 the event was written, but nothing obeyed it before --wait ended,
              or it could not be carried out
            8 there is no such round, action, cluster or record (yet)
            9 part of the request is planned or set, the rest is named
"""


class _Place(NamedTuple):
    """Where a command is, under its name and ``_command``, and its line in the list of commands, which needs no import."""

    module: str
    summary: str
    is_endless: bool = False
    """Whether it runs until it is asked to stop."""


GROUPS = {
    "Run it": {
        "topics": _Place("topics", "Make and check the topics."),
        "run": _Place("services", "Read load reports, decide, publish exactly once.", is_endless=True),
        "collect": _Place(
            "services", "Write what a cluster's brokers report to the input topic.", is_endless=True
        ),
        "execute": _Place("services", "Carry decisions out on a cluster and verify them.", is_endless=True),
    },
    "Operate a cluster": {
        "pause": _Place("operate", "Hold every action; the policies go on counting."),
        "resume": _Place("operate", "End a pause or a hold of a cluster that was failing."),
        "mode": _Place("operate", "Let a cluster act, or only show what it would do."),
        "policy": _Place("operate", "Change decision settings while the controller runs."),
        "control": _Place("operate", "List what operators have set, and take it all back."),
        "maintenance": _Place("maintenance", "Leave brokers and namespaces alone for a while."),
        "drain": _Place("maintenance", "Empty a broker, and keep it empty."),
        "approve": _Place("approve", "Approve proposed actions."),
        "reject": _Place("approve", "Reject proposed actions."),
        "forget": _Place("operate", "Forget what the controller remembers of a cluster."),
    },
    "Look at what happens": {
        "status": _Place("status", "Show what is in force for each cluster, and why nothing happens."),
        "rounds": _Place("rounds", "Read what each round saw, decided and held back."),
        "actions": _Place("actions", "Watch what is decided, and ask why."),
        "rejected": _Place("rejected", "Read the records that could not be used, and why."),
        "doctor": _Place("doctor", "Check the whole installation, and say what is wrong."),
        "config": _Place("config", "Show the settings in force, each with its source."),
    },
    "Plan and try": {
        "simulate": _Place("simulate", "See what settings do to a simulated fleet."),
        "backtest": _Place("simulate", "Compare settings on the recorded reports of a real cluster."),
        "record": _Place("recordings", "Record what a controller reads, for replay.", is_endless=True),
        "replay": _Place("recordings", "Decide on recorded events, without a broker."),
        "feed": _Place(
            "recordings", "Play a recording, or a made-up fleet, to the input topic.", is_endless=True
        ),
        "split": _Place("split", "Work out where to cut a bundle."),
        "throttle": _Place("throttle", "Work out the replication throttle of a reassignment."),
    },
}
"""The commands by what a person wants to do."""
_PLACES = {name: place for group in GROUPS.values() for name, place in group.items()}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  the same
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(
            import_module(f"streaming.cli.{place.module}"), f"{cmd_name}_command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        place = _PLACES.get(args[0])
        if place and place.is_endless and threading.current_thread() is threading.main_thread():
            ctx.with_resource(stop_requests_kept())  # what it imports takes a second
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click looks for a near name among commands that are loaded
            raise NoSuchCommand(error.command_name, possibilities=_PLACES, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Brokers that do not answer have an exit code of their own, whichever command asks them."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if error.__cause__ is None:
                raise
            from streaming.process.exits import NotReached, Refused  # noqa: PLC0415  what only an error needs
            from streaming.systems import is_outage  # noqa: PLC0415

            if isinstance(error, Refused) and is_outage(error):
                raise NotReached(error.message) from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.summary) for name, place in group.items()])


def _show_versions(ctx: click.Context) -> None:
    from importlib.metadata import version  # noqa: PLC0415  what only this option needs

    works_with = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "kafka-python", "pulsar-client"))
    click.echo(f"trimtab, version {version('trimtab')} ({works_with}, Python {platform.python_version()})")
    ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, is_asked: _show_versions(ctx) if is_asked else None,
    help="Show the version, and those of Spark, the clients and Python.",
)
def main() -> None:
    """Keep Pulsar clusters balanced and the copies of Kafka within bounds, calmly, and say why.

    Reads broker load reports from a topic and publishes the few corrections that help.
    """
