"""Exit codes of ``trimtab``, and the errors that carry them to the command line."""

import click

OK = 0
FAILED = 1
"""Something nobody foresaw; the traceback is printed."""
WRONG_USE = 2
"""Options or settings are wrong; nothing was started."""
INFEASIBLE = 3
"""What was asked for was worked out and printed, and would never end."""
FENCED = 4
"""Another controller of the same name has taken over; do not restart this one."""
REFUSED = 5
"""The cluster, its topics or the checkpoint are not as they must be; the message names the remedy."""
UNREACHABLE = 6
"""Brokers, or the checkpoint's store, did not answer within ``controller.start_wait_s``; starting again is right."""
NOT_ACKNOWLEDGED = 7
"""A control event was written, and no round obeyed it while ``--wait`` waited."""

FINAL = (WRONG_USE, FENCED, REFUSED)
"""What a supervisor must not restart: it would end the same way, or two controllers would fence each other in turn."""


class WrongUse(click.ClickException):
    """Options or settings are wrong."""

    exit_code = WRONG_USE


class Refused(click.ClickException):
    """What was found outside does not allow a start."""

    exit_code = REFUSED


class FencedOff(click.ClickException):
    """Another controller of the same name has taken over."""

    exit_code = FENCED


class NotReached(click.ClickException):
    """Nobody answered for as long as a start waits."""

    exit_code = UNREACHABLE


class NotFound(click.ClickException):
    """What was asked for is not there."""

    exit_code = FAILED


class NotAcknowledged(click.ClickException):
    """No round obeys what was written."""

    exit_code = NOT_ACKNOWLEDGED


class SparkEnded(click.ClickException):
    """Spark went away under the application; starting again goes on where it was."""

    exit_code = FAILED
