"""The demo without a terminal: a line for everything that happens, flushed at once."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from deploy.local.demo import wording
from deploy.local.demo.story import Decision, Fate, Story
from state.outputs import Split


@dataclass(slots=True)
class Lines:
    """Prints what is new in a story since the last call of ``show``."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    _fates: dict[str, Fate] = field(default_factory=dict)
    _rounds_count: int = 0
    _fleet_shown: bool = False
    _happenings_count: int = 0

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
            f"Kafka {story.bootstrap}",
            f"settings {story.settings_file}",
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
        for decision in story.decisions:
            if self._fates.get(decision.action_id) != decision.fate:
                self._decision(decision, is_new=decision.action_id not in self._fates)
                self._fates[decision.action_id] = decision.fate
        if story.rounds_count > self._rounds_count and story.last_round is not None:
            self._rounds_count = story.rounds_count
            self._line(
                f"round {story.last_round.round}: {wording.outcome(story.last_round)} · {_loads(story)} · "
                f"spread {story.spreads_points[-1]:.1f} points · lag {story.lags_s[-1]:.1f} s · "
                f"{wording.state(story.last_round)}"
            )

    def end(self, story: Story) -> None:
        """Print what came of it."""
        for line in wording.ending(story):
            self._line(line)

    def _decision(self, decision: Decision, *, is_new: bool) -> None:
        about = wording.describe_decision(decision)
        if is_new and isinstance(decision.action, Split):
            self._line(f"decided: split {about}")
            for line in wording.picture(decision) or [decision.action.reason]:
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
        f"{wording.short_name_of(broker.broker)} {broker.usage_points:.0f} %" for broker in story.now.values()
    )
