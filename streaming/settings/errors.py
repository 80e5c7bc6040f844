"""What is wrong with the settings: all problems at once, each with its origin and name."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

CLOSE_RATIO = 0.6
"""Similarity from which one name is suggested for another; difflib's own default, fit for names of 5-30 letters."""


def dotted(path: Sequence[str]) -> str:
    """A path as TOML writes it, ``pulsar.capacity.brokers."b1:8080".bytes_per_s``."""
    return ".".join(
        part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: where it was written (file, variable, option), the path of the key, and the complaint."""

    origin: str
    path: tuple[str, ...]
    complaint: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, dotted(self.path), self.complaint) if part)


class SettingsError(Exception):
    """The settings cannot be used; the text has a line for every problem found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def suggest_nearest(name: str, known: Iterable[str], *, elsewhere: Iterable[str] = ()) -> str:
    """A hint such as "did you mean": the closest of ``known``, else of the full keys ``elsewhere``, else all known."""
    here = sorted(known)
    close = get_close_matches(name, here, n=1, cutoff=CLOSE_RATIO)
    if close:
        return f"did you mean {close[0]}?"
    by_leaf: dict[str, str] = {}
    for key in elsewhere:
        by_leaf.setdefault(key.rsplit(".", 1)[-1], key)
    close = get_close_matches(name, by_leaf, n=1, cutoff=CLOSE_RATIO)
    if close:
        return f"did you mean {by_leaf[close[0]]}?"
    return f"known here: {', '.join(here)}"
