"""How the process logs: lines for people, or an object a line for collectors of logs.

Ordinary ``logging``; what a line is about travels in ``extra`` under the names of ``FIELDS``. A line for people says it
in its text, an object has it as fields.
"""

import logging
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

__all__ = ["FIELDS", "log_to_stderr"]

FIELDS = ("cluster", "round", "action_id")
"""What a line can be about; absent from an object where it does not apply."""

_CONSOLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CHATTY = ("kafka", "py4j", "httpx", "httpcore")
"""They write five lines a second while a broker is down, or one for each request; what matters is raised anyway."""


def formatter(form: Literal["console", "json"]) -> logging.Formatter:
    """Of lines for people, or of objects with ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``."""
    if form == "console":
        return logging.Formatter(_CONSOLE)
    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger", "timestamp": "time"},
        timestamp=True,
    )


def log_to_stderr(form: Literal["console", "json"], *, verbose: bool) -> None:
    """Set up the process's logging, instead of any there was."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
