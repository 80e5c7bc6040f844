"""Exit codes of ``trimtab``, and the errors that carry them to the command line."""

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from streaming.process.logs import logs_objects

OK = 0
"""Done, or stopped on request."""
FAILED = 1
"""An unforeseen error, such as the end of Spark's JVM; the log or the traceback has the cause."""
WRONG_USE = 2
"""Options or settings are wrong; nothing was started."""
INFEASIBLE = 3
"""``trimtab throttle plan``: the plan was printed, but neither it nor its ``--batches`` would ever end, or it misses ``--deadline``."""
FENCED = 4
"""Another controller of the same name has taken over; do not restart this one, or the two fence each other again and again."""
REFUSED = 5
"""What trimtab works with is not as it must be: the cluster, its topics, the checkpoint, a disk, a port; the message names
the remedy. ``trimtab doctor``: there is a problem."""
UNREACHABLE = 6
"""Brokers, or the checkpoint's store, did not answer; a program that runs on waits ``controller.start_wait_s`` for them. Start it again."""
NOT_ACKNOWLEDGED = 7
"""A command with ``--wait``: its event was written, and no controller obeyed it in time or before Ctrl-C, a drain cannot end, or an
approved action was not published; see ``trimtab status``."""
NOT_FOUND = 8
"""The round, action, cluster or record that a command asked for is not there, or not there yet; the message says where to look."""
PARTIAL = 9
"""``trimtab throttle plan``: a plan was printed, and parts of the request are not in it, or ``--apply`` could not set them; they are
named with the reason."""

FINAL = (WRONG_USE, FENCED, REFUSED)
"""After these a supervisor must not restart the process: it would end the same way, or two controllers would fence each other
in turn."""


class _Exit(click.ClickException):
    """Ends the process with a message: a line of the log if the log is JSON, else click's own message."""

    def show(self, file: IO[Any] | None = None) -> None:
        """See click."""
        if logs_objects():
            logging.getLogger("trimtab").error("%s", self.message, extra={"exit_code": self.exit_code})
        else:
            super().show(file)


class WrongUse(_Exit):
    """Options or settings are wrong."""

    exit_code = WRONG_USE


class Refused(_Exit):
    """What trimtab works with does not allow what was asked for."""

    exit_code = REFUSED


class FencedOff(_Exit):
    """Another controller of the same name has taken over."""

    exit_code = FENCED


class NotReached(_Exit):
    """Brokers, or the checkpoint's store, did not answer: for as long as a start waits, or when a command asked."""

    exit_code = UNREACHABLE


class NotFound(_Exit):
    """What was asked for is not there."""

    exit_code = NOT_FOUND


class NotAcknowledged(_Exit):
    """No controller obeys what was written."""

    exit_code = NOT_ACKNOWLEDGED


@contextmanager
def waiting(stays: str) -> Iterator[None]:
    """Wait for what was written to be obeyed: where Ctrl-C or an outage ends the wait, the message says that it ``stays``.

    Raises ``NotAcknowledged`` or ``NotReached``.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise NotAcknowledged(f"stopped waiting, but it is written: {stays}") from None
    except NotReached as error:
        raise NotReached(f"{error.message} It is written all the same: {stays}") from error


class SparkEnded(_Exit):
    """Spark ended while the application ran; a new start goes on where it was."""

    exit_code = FAILED


_FOR_MACHINES = re.compile(r"\[(?:Errno|Error) -?\d+\] |\[(?:SSL|X509)\b[^\]]*\] | \(_ssl\.c:\d+\)")
"""Numbers of the operating system and of Kafka, and places in OpenSSL's source."""
_CODE = re.compile(r"\b\d+ (E[A-Z]{3,})\b")
"""How Kafka's client names an error of the operating system."""
_CLASSES = re.compile(r"^(?:(?:[a-z]\w*\.)+[A-Z]\w*: )+(?=\S)")
"""Classes of Java, each in front of the words of the one that it wraps."""
_PULSARS = re.compile(r"\bPulsar error: (\w+)")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def split_name(name: str) -> str:
    """The words of an error's class, such as `broker metadata error`."""
    return _CAPITAL.sub(" ", name).lower()


def words_of(error: BaseException | str) -> str:
    """What an error, or its text, says in words. The file of an operating system's error is in its text only: messages name it."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    for pattern, words in (
        (_FOR_MACHINES, ""),
        (
            _CODE,
            lambda match: os.strerror(getattr(errno, match[1])) if hasattr(errno, match[1]) else match[0],
        ),
        (_CLASSES, ""),
        (_PULSARS, lambda match: f"Pulsar says: {split_name(match[1])}"),
    ):
        said = pattern.sub(words, said)
    return said or ("" if isinstance(error, str) else type(error).__name__)


@contextmanager
def raised_as(end: type[_Exit], *kinds: type[Exception], of: str | None = None) -> Iterator[None]:
    """An error of these kinds ends the process with its text and the code of ``end``, not with a traceback; ``of``: what it is about."""
    try:
        yield
    except kinds as error:
        raise end(words_of(error) if of is None else f"{of}: {words_of(error)}") from error
