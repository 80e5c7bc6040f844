"""Regular expressions that come from a cluster, matched in a time linear in the name whatever the pattern.

That is possible because RE2 has no look-around and no back-references; a pattern outside its language is refused when it is
decoded. Pulsar's own patterns are Java's, which has both, but they are almost never used.
"""

from functools import lru_cache
from typing import Any

import re2

MAX_PATTERN_CHARACTERS = 10_000
_CACHED_COUNT = 1024
_MEMORY_BYTES = 1 << 20
"""Most memory of one compiled pattern."""


class BadPattern(ValueError):
    """A pattern that is refused; the message says why."""


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False  # they are raised
    return options


@lru_cache(_CACHED_COUNT)
def compile_pattern(pattern: str) -> Any:
    """The pattern, with a method ``fullmatch``. Raises ``BadPattern``."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise BadPattern(f"it has {len(pattern)} characters, at most {MAX_PATTERN_CHARACTERS} are taken")
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        message = error.args[0] if error.args else error
        raise BadPattern(
            message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        ) from error
