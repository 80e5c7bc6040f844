"""``trimtab``: the command line. Loads neither Spark nor a broker's client until a command needs them."""

from importlib.metadata import version

import click

from streaming.commands.actions import actions_command
from streaming.commands.collect import collect_command
from streaming.commands.config import config_command
from streaming.commands.control import mode_command, pause_command, policy_command, resume_command
from streaming.commands.execute import execute_command
from streaming.commands.replay import replay_command
from streaming.commands.run import run_command
from streaming.commands.split import split_command
from streaming.commands.throttle import throttle_command
from streaming.commands.topics import topics_command

_EPILOG = """
\b
Exit codes: 0 done · 1 unforeseen failure · 2 wrong options or settings
            3 the plan would never end
            4 another controller of this name took over
            5 the cluster, its topics or the checkpoint do not allow a start
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(version("trimtab"), prog_name="trimtab")
def main() -> None:
    """Keep Pulsar and Kafka clusters balanced, calmly, and say why.

    Reads broker load reports from a topic and publishes the few corrections that help.
    """


main.add_command(run_command)
main.add_command(replay_command)
main.add_command(split_command)
main.add_command(throttle_command)
main.add_command(topics_command)
main.add_command(collect_command)
main.add_command(execute_command)
main.add_command(config_command)
for command in (actions_command, pause_command, resume_command, mode_command, policy_command):
    main.add_command(command)
