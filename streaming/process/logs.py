"""How the process logs: lines for people, or one JSON object a line for collectors of logs.

It uses ordinary ``logging``; what a line is about is passed in ``extra`` under the names of ``FIELDS``. A line for people says it
in its text, an object has it as fields.

Libraries log here, too: warnings and above, and only the first few equal lines a minute, because a client whose broker is
down repeats itself several times a second. A later line says how many were left out. Pulsar's client keeps its own console
logger, which prints errors: it can lock up the interpreter when it is given one of Python's loggers
(apache/pulsar-client-python#116).
"""

import logging
import re
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

FIELDS = ("cluster", "round", "action_id")
"""What a line can be about; absent from an object where it does not apply."""

_CONSOLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LIBRARIES = ("kafka", "py4j", "httpx", "httpcore")
"""At INFO they write a line for each connection or request."""

EQUAL_PER_MINUTE = 5
"""Lines of a logger that are equal except for numbers: enough to see that the problem lasts, too few to hide other lines."""
_WINDOW_S = 60.0
_KINDS_MAX = 1000
"""How many kinds of lines are remembered; the oldest are forgotten."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_KIND_CHARS = 200


@dataclass(slots=True)
class _Window:
    began_s: float
    first: logging.LogRecord
    count: int = 0


class RateLimit:
    """Decides which warnings and errors are logged: ``most`` a minute of those of a logger that are equal except for numbers."""

    def __init__(self, most: int = EQUAL_PER_MINUTE) -> None:
        self._most = most
        self._windows: dict[tuple[str, int, str], _Window] = {}

    def admits(self, record: logging.LogRecord, now_s: float) -> bool:
        """Whether to log the record. Records below a warning are always logged, because a user asked for them."""
        if record.levelno < logging.WARNING:
            return True
        kind = (record.name, record.levelno, _NUMBERS.sub("#", record.getMessage()[:_KIND_CHARS]))
        window = self._windows.setdefault(kind, _Window(now_s, record))
        window.count += 1
        if len(self._windows) > _KINDS_MAX:
            del self._windows[next(iter(self._windows))]
        return window.count <= self._most

    def left_out(self, now_s: float) -> list[logging.LogRecord]:
        """A record for each kind of which some were left out in the minute that is over, saying how many."""
        over = [kind for kind, window in self._windows.items() if now_s - window.began_s >= _WINDOW_S]
        ended = [self._windows.pop(kind) for kind in over]
        return [self._summary(window) for window in ended if window.count > self._most]

    def _summary(self, window: _Window) -> logging.LogRecord:
        message = window.first.getMessage().partition("\n")[0]
        text = f"{window.count - self._most} more like this were left out in {_WINDOW_S:g} s: {message}"
        first = window.first
        return logging.LogRecord(first.name, first.levelno, first.pathname, first.lineno, text, (), None)


class LimitedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to standard error, with a rate limit for warnings and errors."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock."""
        try:
            now_s = time.monotonic()
            summaries, is_told = self._limit.left_out(now_s), self._limit.admits(record, now_s)
        except (TypeError, ValueError):  # its arguments do not fit its text; logging says so
            summaries, is_told = [], True
        for summary in summaries:
            super().emit(summary)
        if is_told:
            super().emit(record)


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
    handler = LimitedHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _log_unforeseen
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)


def logs_objects() -> bool:
    """Whether the process logs a JSON object a line."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def _log_unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log the error that ends the process as a line like any other, with its traceback."""
    logging.getLogger("trimtab").critical("ended by an unforeseen failure", exc_info=(kind, error, trace))
