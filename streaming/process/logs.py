"""How the process logs: lines for people, or one JSON object a line for collectors of logs.

It uses ordinary ``logging``; what a line is about is passed in ``extra`` as ``cluster``, ``round`` and ``action_id``. A line for people says it
in its text, an object has it as fields.

A fault is one line with its cause, however long it lasts: what is equal to a line of the last minute is counted, and a line says
so once a minute. Its stack is logged at debug. Libraries log here, too, warnings and above, with the error in place of its stack.
Pulsar's client keeps a console logger of its own, because it can lock up the interpreter when it is given one of Python's
(apache/pulsar-client-python#116); see ``streaming.pulsar.clients``.
"""

import logging
import re
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

_CONSOLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LIBRARIES = ("kafka", "py4j", "httpx", "httpcore")
"""At INFO they write a line for each connection or request."""

_OURS = ("streaming", "trimtab")
_WINDOW_S = 60.0
_KINDS_MAX = 1000
"""How many kinds of lines are remembered; the oldest are forgotten."""
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+")
_MEASURED = re.compile(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w:/-])")
"""Numbers that stand alone: in our lines those in a name tell one broker from another."""
_KIND_CHARS = 200


@dataclass(slots=True)
class _Window:
    began_s: float
    newest: logging.LogRecord
    repeats: int = 0


class RateLimit:
    """Decides which warnings and errors are logged: of those that are equal but for what varies the first, then a count a minute."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int, str, str], _Window] = {}

    def admits(self, record: logging.LogRecord, now_s: float) -> bool:
        """Whether to log the record. Records below a warning are always logged, because a user asked for them."""
        if record.levelno < logging.WARNING:
            return True
        kind = _kind_of(record)
        if (window := self._windows.get(kind)) is not None:
            window.repeats += 1
            window.newest = record
            return False
        self._windows[kind] = _Window(now_s, record)
        if len(self._windows) > _KINDS_MAX:
            del self._windows[next(iter(self._windows))]
        return True

    def repeated(self, now_s: float) -> list[logging.LogRecord]:
        """A record for each kind that was repeated in the minute that is over, saying how often; a kind that was not is forgotten."""
        over = [kind for kind, window in self._windows.items() if now_s - window.began_s >= _WINDOW_S]
        ended = {kind: self._windows.pop(kind) for kind in over}
        counted = {kind: window for kind, window in ended.items() if window.repeats}
        self._windows |= {kind: _Window(now_s, window.newest) for kind, window in counted.items()}
        return [_count(window, now_s) for window in counted.values()]


def _kind_of(record: logging.LogRecord) -> tuple[str, int, str, str]:
    varying = _MEASURED if record.name.startswith(_OURS) else _VARYING
    text = varying.sub("#", record.getMessage()[:_KIND_CHARS])
    return record.name, record.levelno, str(getattr(record, "cluster", "")), text


def _count(window: _Window, now_s: float) -> logging.LogRecord:
    """It has the newest line's text, because the first one's numbers are old by now, and its time, because it may be over by now."""
    newest, times = window.newest, "time" if window.repeats == 1 else "times"
    message = newest.getMessage().partition("\n")[0]
    last = time.strftime("%H:%M:%S", time.localtime(newest.created))
    text = f"the same {window.repeats} {times} more in {now_s - window.began_s:.0f} s, the last at {last}: {message}"
    return logging.LogRecord(newest.name, newest.levelno, newest.pathname, newest.lineno, text, (), None)


class LimitedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to standard error. Equal warnings and errors are counted; ``verbose`` logs all of them, and libraries' stacks."""

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self._limit = RateLimit()
        self._is_verbose = verbose

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock."""
        if self._is_verbose:
            super().emit(record)
            return
        try:
            now_s = time.monotonic()
            counts, is_told = self._limit.repeated(now_s), self._limit.admits(record, now_s)
            shown = _without_stack(record)
        except (TypeError, ValueError):  # its arguments do not fit its text; logging says so
            counts, is_told, shown = [], True, record
        for count in counts:
            super().emit(count)
        if is_told:
            super().emit(shown)


def _without_stack(record: logging.LogRecord) -> logging.LogRecord:
    """A library's line with the error in place of its stack."""
    if record.name.startswith(_OURS) or not record.exc_info:
        return record
    text = f"{record.getMessage()} {record.exc_info[1]!r}"
    return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, (), None)


def formatter(form: Literal["console", "json"]) -> logging.Formatter:
    """Lines for people, or JSON objects with ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``."""
    if form == "console":
        return logging.Formatter(_CONSOLE)
    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger", "timestamp": "time"},
        timestamp=True,
    )


def log_to_stderr(form: Literal["console", "json"], *, verbose: bool) -> None:
    """Set up the process's logging, in place of any earlier setup."""
    handler = LimitedHandler(verbose=verbose)
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _log_unforeseen
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)


def logs_stacks() -> bool:
    """Whether the process logs everything, stacks of failures as well."""
    return logging.getLogger().isEnabledFor(logging.DEBUG)


def logs_objects() -> bool:
    """Whether the process logs a JSON object a line."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def _log_unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log the error that ends the process as a line like any other, with its traceback."""
    logging.getLogger("trimtab").critical("ended by an unforeseen failure", exc_info=(kind, error, trace))
