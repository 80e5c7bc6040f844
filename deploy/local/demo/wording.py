"""The story in words, and the demo without a terminal: a line for everything that happens, flushed at once.

The screen shows the same words.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from deploy.local.demo.story import Decision, Fate, Story
from policies.wording import counted
from state.outputs import RoundSummary, Split
from state.overlay import ControlData, moment_at
from streaming.cli.control import maintenance_of, overlay_lines, window_text
from streaming.cli.summaries import outcome_text
from streaming.planner.split import draw


def short_name_of(broker: str) -> str:
    """The part that tells a broker from the others: its host, or on 127.0.0.1, which all of them share, its port."""
    host, _, port = broker.partition(":")
    return f":{port}" if host == "127.0.0.1" else host


def describe_change(decision: Decision) -> str:
    """What is to happen: from where to where, or into how many."""
    action = decision.action
    if isinstance(action, Split):
        return f"into {len(action.children)} on {short_name_of(action.broker)}"
    destination = (
        "Pulsar's choice" if action.destination_broker is None else short_name_of(action.destination_broker)
    )
    return f"{short_name_of(action.source_broker)} → {destination}"


def describe_decision(decision: Decision) -> str:
    """The bundle and what is to happen to it."""
    action = decision.action
    if isinstance(action, Split):
        boundaries = ", ".join(f"0x{at:08x}" for at in action.boundaries)
        return f"{action.bundle} into {len(action.children)} at {boundaries}"
    return f"{action.bundle} {describe_change(decision)}"


def reason(decision: Decision) -> str:
    """The reason without what is shown beside it: the brokers and the move, or the bundle and the boundaries."""
    action = decision.action
    if isinstance(action, Split):
        return action.reason.partition(": cut at ")[0].removeprefix(f"{action.bundle} has ")
    sentence = action.reason.partition(": moving ")[0].removeprefix(f"{action.source_broker} is at ")
    return sentence.replace(f"{action.destination_broker} at ", "")


def picture(decision: Decision) -> list[str]:
    """The lines of the picture of a cut; none for an unload."""
    return [] if decision.plan is None else draw(decision.plan).splitlines()


def state(summary: RoundSummary | None) -> str:
    """Whether decisions are carried out."""
    if summary is None:
        return "waiting for the first round"
    if summary.paused:
        return "paused"
    return "acting" if summary.mode == "act" else "dry-run: nothing is moved"


def lag(story: Story) -> str:
    """Time from a round's end to its decision."""
    return "unknown yet" if story.lag_s is None else f"{story.lag_s:.1f} s"


def changes(story: Story) -> list[str]:
    """What people changed from another terminal, oldest first."""
    lines, before = [], ControlData()
    for event in story.controls:
        at, data = moment_at(event.time_ms), event.data
        what = ", ".join(_changed(before.at(at), data)) or "nothing new"
        who, why = data.who or "somebody", data.why or "no reason given"
        lines.append(f"{at.astimezone():%H:%M:%S} by {who} ({why}): {what}")
        before = data
    return lines


def _changed(before: ControlData, after: ControlData) -> Iterator[str]:
    old, new = list(_set_in(before)), list(_set_in(after))
    if after.forget:
        yield "all memory forgotten"
    yield from (each for each in new if each not in old)
    yield from (f"no longer {each}" for each in old if each not in new)


def _set_in(data: ControlData) -> Iterator[str]:
    """All that a control event sets, each part in a few words."""
    if data.paused:
        yield "paused" if data.until is None else f"paused until {data.until.astimezone():%H:%M:%S}"
    if data.mode:
        yield f"mode {data.mode}"
    if data.approval:
        yield f"approval {data.approval}"
    yield from (window_text(key) for key, _ in maintenance_of(data))
    yield from overlay_lines(data.settings)


def ending(story: Story) -> list[str]:
    """The last lines of a run: what came of it."""
    if not story.first:
        return ["stopped before the fleet reported"]
    spread = f"spread {story.first_spread_points:.1f} → {story.spreads_points[-1]:.1f} points"
    split = f"{counted(story.split_count, 'bundle')} split"
    facts = f"{split}, {story.moved_count} moved, {counted(story.rounds_count, 'round')}, lag {lag(story)}"
    changed = [f"  {change}" for change in changes(story)]
    if changed:
        changed.insert(0, "changed from another terminal:")
    if story.is_balanced:
        return [f"balanced, first after {story.balanced_after_s or 0:.0f} s: {spread}, {facts}", *changed]
    return [f"not balanced: {spread}, {facts}", *(f"  {each}" for each in story.problems()), *changed]


@dataclass(slots=True)
class Lines:
    """Prints what is new in a story since the last call of ``show``."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    _fates: dict[str, Fate] = field(default_factory=dict)
    _rounds_count: int = 0
    _fleet_shown: bool = False
    _happenings_count: int = 0
    _changes_count: int = 0

    @contextmanager
    def show_step(self, what: str) -> Iterator[None]:
        """Say what is being waited for, and how long it took."""
        self._line(f"{what} …")
        began = time.monotonic()
        yield
        self._line(f"{what}: done in {time.monotonic() - began:.1f} s")

    @contextmanager
    def playing(self, story: Story) -> Iterator[None]:
        """Say where things are."""
        for place in (
            f"metrics {story.metrics_url}",
            f"settings {story.settings_file}",
            f"in a second terminal: {story.command}",
        ):
            self._line(place)
        yield

    def show(self, story: Story) -> None:
        """Print what is new."""
        if story.now and not self._fleet_shown:
            self._fleet_shown = True
            self._line(
                f"{len(story.now)} brokers, {story.bundles_count} bundles at the start: {_loads(story)}"
            )
        for text in story.happenings[self._happenings_count :]:
            self._line(text)
        self._happenings_count = len(story.happenings)
        for text in changes(story)[self._changes_count :]:
            self._line(f"changed {text}")
        self._changes_count = len(story.controls)
        for decision in story.decisions:
            if self._fates.get(decision.action_id) != decision.fate:
                self._decision(decision, is_new=decision.action_id not in self._fates)
                self._fates[decision.action_id] = decision.fate
        if story.rounds_count > self._rounds_count and story.last_round is not None:
            self._rounds_count = story.rounds_count
            self._line(
                f"round {story.last_round.round}: {outcome_text(story.last_round)} · {_loads(story)} · "
                f"spread {story.spreads_points[-1]:.1f} points · lag {story.lags_s[-1]:.1f} s · "
                f"{state(story.last_round)}"
            )

    def end(self, story: Story) -> None:
        """Print what came of it."""
        for line in ending(story):
            self._line(line)

    def _decision(self, decision: Decision, *, is_new: bool) -> None:
        about = describe_decision(decision)
        if is_new and isinstance(decision.action, Split):
            self._line(f"decided: split {about}")
            for line in picture(decision) or [decision.action.reason]:
                self._line(f"  {line}".rstrip())
        elif is_new:
            self._line(f"decided: {about}: {decision.action.reason}")
        if decision.fate in ("moved", "split"):
            self._line(f"{decision.fate}: {about}")
        elif decision.fate in ("skipped", "failed", "dry-run"):
            self._line(f"{decision.fate}: {decision.action.bundle} {decision.why}".rstrip())

    def _line(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=self.out, flush=True)


def _loads(story: Story) -> str:
    return ", ".join(
        f"{short_name_of(broker.broker)} {broker.usage_points:.0f} %" for broker in story.now.values()
    )
