"""Rows of measurements, how time is measured, and the page that shows them beside the machine they were made on.

Of several times the best counts, because everything that disturbs only ever adds.
"""

import gc
import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value, and what it is held to, in its unit."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def limit(self) -> float | None:
        return self.at_most if self.at_least is None else self.at_least

    @property
    def is_missed(self) -> bool:
        """Whether there is a limit and the value is on the wrong side of it."""
        if self.limit is None:
            return False
        return self.value > self.limit if self.at_least is None else self.value < self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part's rows, with how they were measured."""

    title: str
    method: str
    rows: Sequence[Row]


def page(sections: Mapping[str, Section]) -> str:
    """The whole page in Markdown; keys are the parts' names as ``--only`` takes them."""
    missed = sum(row.is_missed for section in sections.values() for row in section.rows)
    return "\n".join(
        [*_head(missed), *(line for item in sections.items() for line in section_lines(*item)), ""]
    )


def with_sections(text: str, sections: Mapping[str, Section], order: Sequence[str]) -> str:
    """The page ``text`` with these sections put in place of the ones it has, or added; the rest of it stays.

    ``order`` is that of all parts. The head is written anew: limits may be missed in any section.
    """
    _, *there = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    found = {match[1]: each.rstrip("\n") for each in there if (match := _COMMAND.search(each))}
    found |= {
        name: "\n".join(section_lines(name, section)).lstrip("\n") for name, section in sections.items()
    }
    missed = sum(each.count("**missed**") for each in found.values())
    placed = [found[name] for name in order if name in found]
    return "\n".join([*_head(missed), *(f"\n{each}" for each in placed), ""])


_COMMAND = re.compile(r"^`python -m tests\.bench --only (\S+)`", re.MULTILINE)


def _head(missed: int) -> list[str]:
    shown = "1 limit is" if missed == 1 else f"{missed} limits are"
    verdict = "Every limit is kept." if missed == 0 else f"**{shown} missed.**"
    return [
        "# Benchmarks",
        "",
        "For whoever asks how fast it is. Afterwards you know the figures, the machine they were measured on, and the limits they are held to.",
        "",
        "Written by `make bench` (`python -m tests.bench`); one part alone, also into this page: `python -m tests.bench --only NAME --write`.",
        "",
        *(f"* {line}" for line in machine()),
        "",
        f"{verdict} *Of limit* is value ÷ limit: at most 1 for a maximum, at least 1 for a minimum.",
    ]


def section_lines(name: str, section: Section) -> list[str]:
    return [
        "",
        f"## {section.title}",
        "",
        section.method,
        "",
        f"`python -m tests.bench --only {name}`, {today()}",
        "",
        "| measured | value | limit | of limit | |",
        "|---|---:|---:|---:|---|",
        *(_line(row) for row in section.rows),
    ]


def _line(row: Row) -> str:
    if row.limit is None:
        return f"| {row.name} | {_number(row.value)} {row.unit} | - | - | |"
    sign = "≤" if row.at_least is None else "≥"
    share = row.value / row.limit
    verdict = "**missed**" if row.is_missed else "ok"
    return f"| {row.name} | {_number(row.value)} {row.unit} | {sign} {row.limit:g} {row.unit} | {share:.2f} | {verdict} |"


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def today() -> str:
    """The date of a measurement."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def machine() -> list[str]:
    """Size and versions of the machine, which belong beside the figures; each section has its date."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    return [
        f"{len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB memory, {_processor()}",
        f"{platform.system()}, Python {platform.python_version()}",
        ", ".join(f"{name} {version(name)}" for name in ("numpy", "msgspec", "pyspark", "kafka-python")),
    ]


def _processor() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", described, re.MULTILINE)
    return found[1] if found else platform.machine()


def best_cpu_s(run: Callable[[], object], *, times: int) -> float:
    """CPU seconds of the quickest of ``times`` calls; other processes on the machine count for little."""
    found = math.inf
    for _ in range(times):
        gc.collect()
        begun = time.process_time()
        run()
        found = min(found, time.process_time() - begun)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed; ``values`` is not empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
