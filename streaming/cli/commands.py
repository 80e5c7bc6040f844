"""``trimtab``: the command line. A command is imported when it is called, so that it does not wait for the imports of others.

The imports are statements, each in a function of its own, so that tools can follow them. Nothing here loads Spark or a
broker's client; a command does when it needs them.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import click

from streaming.process.stopping import stop_requests_kept

_EPILOG = """
\b
Exit codes: 0 done · 1 unforeseen failure · 2 wrong options or settings
            3 the plan would never end
            4 another controller of this name took over
            5 the cluster, its topics or the checkpoint do not allow a start,
              or doctor found a problem
            6 the brokers or the checkpoint's store did not answer in time
            7 the event was written, but nothing obeyed it before --wait ended,
              or it could not be carried out
"""


class _Place(NamedTuple):
    """How a command is imported, and its line in the list of commands, which needs no import."""

    load: Callable[[], click.Command]
    summary: str
    is_endless: bool = False
    """Whether it runs until it is asked to stop."""


def _actions() -> click.Command:
    from streaming.cli.actions import actions_command

    return actions_command


def _approve() -> click.Command:
    from streaming.cli.approve import approve_command

    return approve_command


def _backtest() -> click.Command:
    from streaming.cli.backtest import backtest_command

    return backtest_command


def _collect() -> click.Command:
    from streaming.cli.collect import collect_command

    return collect_command


def _config() -> click.Command:
    from streaming.cli.config import config_command

    return config_command


def _control() -> click.Command:
    from streaming.cli.control import control_command

    return control_command


def _doctor() -> click.Command:
    from streaming.cli.doctor import doctor_command

    return doctor_command


def _drain() -> click.Command:
    from streaming.cli.upkeep import drain_command

    return drain_command


def _execute() -> click.Command:
    from streaming.cli.execute import execute_command

    return execute_command


def _feed() -> click.Command:
    from streaming.cli.feed import feed_command

    return feed_command


def _forget() -> click.Command:
    from streaming.cli.control import forget_command

    return forget_command


def _maintenance() -> click.Command:
    from streaming.cli.upkeep import maintenance_command

    return maintenance_command


def _mode() -> click.Command:
    from streaming.cli.control import mode_command

    return mode_command


def _pause() -> click.Command:
    from streaming.cli.control import pause_command

    return pause_command


def _policy() -> click.Command:
    from streaming.cli.control import policy_command

    return policy_command


def _record() -> click.Command:
    from streaming.cli.record import record_command

    return record_command


def _reject() -> click.Command:
    from streaming.cli.approve import reject_command

    return reject_command


def _rejected() -> click.Command:
    from streaming.cli.rejected import rejected_command

    return rejected_command


def _replay() -> click.Command:
    from streaming.cli.replay import replay_command

    return replay_command


def _resume() -> click.Command:
    from streaming.cli.control import resume_command

    return resume_command


def _rounds() -> click.Command:
    from streaming.cli.rounds import rounds_command

    return rounds_command


def _run() -> click.Command:
    from streaming.cli.run import run_command

    return run_command


def _simulate() -> click.Command:
    from streaming.cli.simulate import simulate_command

    return simulate_command


def _split() -> click.Command:
    from streaming.cli.split import split_command

    return split_command


def _status() -> click.Command:
    from streaming.cli.status import status_command

    return status_command


def _throttle() -> click.Command:
    from streaming.cli.throttle import throttle_command

    return throttle_command


def _topics() -> click.Command:
    from streaming.cli.topics import topics_command

    return topics_command


_PLACES = {
    "actions": _Place(_actions, "Watch what is decided, and ask why."),
    "approve": _Place(_approve, "Approve proposed actions."),
    "backtest": _Place(_backtest, "Compare settings on the recorded reports of a real cluster."),
    "collect": _Place(_collect, "Write what a cluster's brokers report to the input topic.", is_endless=True),
    "config": _Place(_config, "Show the settings in force, each with its source."),
    "control": _Place(_control, "List what operators have set, and take it back."),
    "doctor": _Place(_doctor, "Check the whole installation, and say what is wrong."),
    "drain": _Place(_drain, "Empty a broker, and keep it empty."),
    "execute": _Place(_execute, "Carry decisions out on a cluster and verify them.", is_endless=True),
    "feed": _Place(_feed, "Play a recording, or a made-up fleet, to the input topic.", is_endless=True),
    "forget": _Place(_forget, "Forget what the controller remembers of a cluster."),
    "maintenance": _Place(_maintenance, "Leave brokers and namespaces alone for a while."),
    "mode": _Place(_mode, "Let a cluster act, or only show what it would do."),
    "pause": _Place(_pause, "Hold every action; the policies go on counting."),
    "policy": _Place(_policy, "Change decision settings while the controller runs."),
    "record": _Place(_record, "Record what a controller reads, for replay.", is_endless=True),
    "reject": _Place(_reject, "Reject proposed actions."),
    "rejected": _Place(_rejected, "Read the records that could not be used, and why."),
    "replay": _Place(_replay, "Decide on recorded events, without a broker."),
    "resume": _Place(_resume, "End a pause or a hold of a cluster that was failing."),
    "rounds": _Place(_rounds, "Read what each round saw, decided and held back."),
    "run": _Place(_run, "Read load reports, decide, publish exactly once.", is_endless=True),
    "simulate": _Place(_simulate, "See what settings do to a simulated fleet."),
    "split": _Place(_split, "Work out where to cut a bundle."),
    "status": _Place(_status, "Show what is in force for each cluster, and why nothing happens."),
    "throttle": _Place(_throttle, "Work out the replication throttle of a reassignment."),
    "topics": _Place(_topics, "Make and check the topics."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  the same
        return _PLACES[cmd_name].load() if cmd_name in _PLACES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        place = _PLACES.get(args[0])
        if place and place.is_endless and threading.current_thread() is threading.main_thread():
            ctx.with_resource(stop_requests_kept())  # what it imports takes a second
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in _PLACES.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """Keep Pulsar and Kafka clusters balanced, calmly, and say why.

    Reads broker load reports from a topic and publishes the few corrections that help.
    """
