"""The demo on a terminal: one screen, from 80 x 24 on, drawn anew several times a second."""

import re
import statistics
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import pairwise
from pathlib import Path

from rich import box
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.local.demo import wording
from deploy.local.demo.fleet import BrokerNow
from deploy.local.demo.story import Decision, Story
from streaming.cli.summaries import outcome_text
from streaming.planner.split import bar

PICTURE_WIDTH, PICTURE_HEIGHT = 100, 30
_HEADER_LINES = 1
_BORDER_LINES = 2
_BORDER_COLUMNS = 4
_LINES_BESIDE_BROKERS = 2
"""Column titles, and the spread."""
_FIXED_COLUMNS = 46
"""What stands beside a broker's bar: name, now, messages/s, bundles, start, gaps and borders."""
_LEAST_DIFFERENCE = 2
"""The start is drawn if it is at least so many columns away from now; less is noise."""
_EIGHTHS = "▏▎▍▌▋▊▉"
_SPARKS = "▁▂▃▄▅▆▇█"
_FATE_STYLES = {
    "moving": "yellow",
    "moved": "green",
    "splitting": "yellow",
    "split": "green",
    "skipped": "red",
    "failed": "red",
    "dry-run": "cyan",
}
_NOT_DONE = ("skipped", "failed")
_LINES_FOR_REASONS = 10
"""With at least so many lines for decisions, reasons are shown whole, and the split that stays in view shows its own, too."""
_REASON_INDENT = " " * 9
_CUT_REASON_LINES = 3
_SVG_FORMAT = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's own format, without the fonts that it would load from the network."""


class Screen:
    """Draws a story on a terminal; start-up shows as lines that stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    @contextmanager
    def show_step(self, what: str) -> Iterator[None]:
        """Show a spinner, then how long it took."""
        began = time.monotonic()
        with self._console.status(f"{what} …"):
            yield
        self._console.print(f"[green]✓[/] {what} [dim]{time.monotonic() - began:.1f} s[/]", highlight=False)

    @contextmanager
    def playing(self, story: Story) -> Iterator[None]:
        """Take the whole screen while the block runs."""
        with Live(self._draw(story), console=self._console, screen=True, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, story: Story) -> None:
        """Draw it anew."""
        if self._live is not None:
            self._live.update(self._draw(story), refresh=True)

    def end(self, story: Story) -> None:
        """Print the pictures of the splits and the result of the run, which stay on the terminal."""
        for decision in story.decisions:
            for line in [*wording.picture(decision), ""] if decision.plan else []:
                self._console.print(line, highlight=False, markup=False)
        for line in wording.ending(story):
            self._console.print(line, highlight=False, markup=False)

    def _draw(self, story: Story) -> RenderableType:
        return render(story, width=self._console.width, height=self._console.height)


def save_picture(story: Story, file: Path) -> None:
    """Write the screen as SVG, 100 x 30."""
    console = Console(
        record=True, width=PICTURE_WIDTH, height=PICTURE_HEIGHT, file=StringIO(), color_system="truecolor"
    )
    console.print(render(story, width=PICTURE_WIDTH, height=PICTURE_HEIGHT))
    console.save_svg(str(file), title="make demo", code_format=_SVG_FORMAT)


def render(story: Story, *, width: int, height: int) -> RenderableType:
    """The whole screen, at most ``height`` lines."""
    brokers_lines = len(story.now) + _LINES_BESIDE_BROKERS + _BORDER_LINES
    lines = height - _HEADER_LINES - brokers_lines
    footer = _footer(story, width, has_room=lines >= 2 * _LINES_FOR_REASONS)
    return Group(
        _header(story, width),
        _brokers(story, width),
        _decisions(story, width, max(3, lines - len(footer))),
        *footer,
    )


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _header(story: Story, width: int) -> Text:
    state = wording.state(story.last_round)
    seconds = round(story.clock() - story.began_at) if story.began_at else 0
    balanced = "balanced" if story.is_balanced else "balancing" if story.moved_count else "unbalanced"
    left = f" trimtab · demo · {seconds // 60}:{seconds % 60:02d} · "
    gap = " " * max(1, width - len(left) - len(balanced) - len(state) - 3)
    style = "bold green" if story.is_balanced else "bold yellow"
    state_style = "green" if state == "acting" else "yellow"
    return _line((left, "bold"), (balanced, style), gap, (f"● {state}", state_style))


def _brokers(story: Story, width: int) -> Panel:
    table = Table.grid(padding=(0, 1), expand=True)
    for justify in ("left", "left", "right", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_row("", "", *(Text(title, style="dim") for title in ("now", "messages/s", "bundles", "start")))
    bar_columns = max(10, width - _FIXED_COLUMNS)
    mean = statistics.fmean(broker.usage_points for broker in story.now.values()) if story.now else 0.0
    for broker in story.now.values():
        first = story.first.get(broker.broker, broker)
        style = _style(broker.usage_points - mean, story.allowed_points / 2)
        table.add_row(
            wording.short_name_of(broker.broker),
            _bar(broker, first, columns=bar_columns, style=style),
            Text(f"{broker.usage_points:.1f} %", style=style),
            f"{broker.messages_per_s:,.0f}",
            str(broker.bundles_count),
            Text(f"{first.usage_points:.1f} %", style="dim"),
        )
    spread = story.spreads_points[-1] if story.spreads_points else 0.0
    table.add_row(
        Text("spread", style="bold"),
        Text(_spark(list(story.spreads_points), bar_columns), style="magenta"),
        Text(f"{spread:.1f}", style="bold magenta"),
        Text("points", style="magenta"),
        "",
        Text(f"{story.first_spread_points:.1f}", style="dim"),
    )
    title = f"{len(story.now)} brokers, {story.bundles_count} bundles"
    return Panel(table, title=title, title_align="left", border_style="dim", box=box.ROUNDED)


def _style(above_mean_points: float, allowed_points: float) -> str:
    if above_mean_points > allowed_points:
        return "red"
    return "blue" if above_mean_points < -allowed_points else "green"


def _bar(broker: BrokerNow, first: BrokerNow, *, columns: int, style: str) -> Text:
    """A bar: solid up to the usage now, shaded up to that at the start if it was more, notched there if it was less."""
    now, start = (columns * min(100.0, each.usage_points) / 100.0 for each in (broker, first))
    full, eighth = int(now), int(8 * (now % 1))
    bar = Text("█" * full, style=style)
    if eighth and full < columns:
        bar.append(_EIGHTHS[eighth - 1])
    if start >= now + _LEAST_DIFFERENCE:
        bar.append("░" * (round(start) - len(bar)), style="dim")
    elif start <= now - _LEAST_DIFFERENCE:
        bar.plain = bar.plain[: int(start)] + "┊" + bar.plain[int(start) + 1 :]
    return bar


def _spark(values: list[float], columns: int) -> str:
    """All values in at most ``columns`` characters, each the mean of its part."""
    if not values:
        return ""
    columns = min(columns, len(values))
    edges = [len(values) * column // columns for column in range(columns + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    highest = max(means) or 1.0
    return "".join(_SPARKS[min(7, int(8 * mean / highest))] for mean in means)


def _decisions(story: Story, width: int, lines: int) -> Panel:
    inside, columns = lines - _BORDER_LINES, width - _BORDER_COLUMNS
    has_room = inside >= _LINES_FOR_REASONS
    split = max(
        (each for each in story.decisions if each.plan is not None), key=_messages_per_s, default=None
    )
    kept = [] if split is None else _cut(split, columns, has_room=has_room)
    kept = kept if len(kept) < inside else []
    others = [decision for decision in reversed(story.decisions) if not kept or decision is not split]
    rows: list[Text] = []
    for decision in others:
        left = inside - len(kept) - len(rows)
        rows += _decision(decision, columns, reason_lines=left - 1 if has_room else 1)[:left]
    rows.extend(kept)
    if not rows:
        rows = [Text(_waiting(story), style="dim", no_wrap=True, overflow="ellipsis")]
    title = f"decisions: {story.decided_count}, followed: {story.moved_count + story.split_count}"
    return Panel(
        Group(*rows), title=title, title_align="left", border_style="dim", box=box.ROUNDED, height=lines
    )


def _waiting(story: Story) -> str:
    if story.last_round is None:
        return "the fleet reports; the first round closes within seconds …"
    return "no decision yet: a finding has to persist for some rounds before anything moves"


def _decision(decision: Decision, columns: int, *, reason_lines: int) -> list[Text]:
    """A line for what is to happen, and at most so many for the reason."""
    at = time.strftime("%H:%M:%S", time.localtime(decision.heard_at))
    rate = f"{_messages_per_s(decision):,.0f}/s"
    first = _line(
        (f"{at} ", "dim"),
        (f"{decision.fate:<7} ", _FATE_STYLES[decision.fate]),
        (f"{wording.describe_change(decision)} ", "bold"),
        f"{decision.action.bundle} {rate}",
    )
    why = decision.why if decision.fate in _NOT_DONE else wording.reason(decision)
    return [first, *_wrapped(why, columns, "dim", lines=reason_lines, indent=_REASON_INDENT)]


def _wrapped(text: str, columns: int, style: str, *, lines: int, indent: str) -> list[Text]:
    """A text in at most so many lines, cut where they do not hold it."""
    if lines < 1:
        return []
    wrapped = textwrap.wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=lines,
        placeholder=" …",
        break_on_hyphens=False,
    )
    return [_line((line, style)) for line in wrapped]


def _messages_per_s(decision: Decision) -> float:
    """Messages/s of the bundle when the action was decided."""
    return float(decision.action.evidence["bundle_messages_per_s"])


def _cut(decision: Decision, columns: int, *, has_room: bool) -> list[Text]:
    """A split with the loads of its topics and the cuts; the heaviest one stays in view while others come and go."""
    if decision.plan is None:
        return []
    says_why = has_room or decision.fate in _NOT_DONE
    told = _decision(decision, columns, reason_lines=_CUT_REASON_LINES if says_why else 0)
    loads, cuts = bar(decision.plan)
    return [*told, _line((f"{_REASON_INDENT}{loads}", "cyan")), _line(f"{_REASON_INDENT}{cuts}")]


def _footer(story: Story, width: int, *, has_room: bool) -> list[Text]:
    """Facts, and a command that stands alone on its line, so that it can be taken whole."""
    summary = story.last_round
    last = "none yet" if summary is None else outcome_text(summary)
    return [
        *(_line((f" {text}", "bold red")) for text in story.happenings),
        *(_line((" changed ", "dim"), text) for text in wording.changes(story)[-1:]),
        *_wrapped(
            f"rounds {story.rounds_count}, lag {wording.lag(story)}, the last: {last}",
            width - 1,
            "",
            lines=2 if has_room else 1,
            indent=" ",
        ),
        _line((" metrics ", "dim"), story.metrics_url, ("  settings ", "dim"), story.settings_file),
        _line((" Ctrl-C ", "bold"), ("stops everything; a second terminal shows more with", "dim")),
        *(_line((line, "bold")) for line in textwrap.wrap(story.command, width, initial_indent=" ")),
    ]
