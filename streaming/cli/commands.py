"""``trimtab``: the command line. A command is imported when it is asked for, so that none pays for the others.

Loads neither Spark nor a broker's client; a command does when it needs them.
"""

from importlib import import_module
from typing import NamedTuple

import click

_EPILOG = """
\b
Exit codes: 0 done · 1 unforeseen failure · 2 wrong options or settings
            3 the plan would never end
            4 another controller of this name took over
            5 the cluster, its topics or the checkpoint do not allow a start
"""


class _Place(NamedTuple):
    """Where a command is, and what the list of commands says of it without importing it."""

    module: str
    summary: str


_PLACES = {
    "actions": _Place("actions", "Watch what is decided, and ask why."),
    "collect": _Place("collect", "Write what a cluster's brokers report to the input topic."),
    "config": _Place("config", "Show the settings in force, each with its source."),
    "execute": _Place("execute", "Carry decisions out on a cluster and verify them."),
    "forget": _Place("control", "Begin anew with what is remembered of a cluster."),
    "mode": _Place("control", "Let a cluster act, or only show what it would do."),
    "pause": _Place("control", "Hold every action; the policies go on counting."),
    "policy": _Place("control", "Change decision settings while the controller runs."),
    "record": _Place("record", "Keep what a controller is given, for replay."),
    "replay": _Place("replay", "Decide what a recording leads to, without a broker."),
    "resume": _Place("control", "End a pause or a hold of a cluster that was failing."),
    "run": _Place("run", "Read load reports, decide, publish exactly once."),
    "split": _Place("split", "Work out where to cut a bundle."),
    "throttle": _Place("throttle", "Work out the replication throttle of a reassignment."),
    "topics": _Place("topics", "Make and check the topics."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  the same
        if cmd_name not in _PLACES:
            return None
        module = import_module(f"streaming.cli.{_PLACES[cmd_name].module}")
        found = getattr(module, f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in _PLACES.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """Keep Pulsar and Kafka clusters balanced, calmly, and say why.

    Reads broker load reports from a topic and publishes the few corrections that help.
    """
