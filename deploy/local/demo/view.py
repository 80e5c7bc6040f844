"""What the demos have in common: how they are shown, how they are called, when they end and how Ctrl-C ends them.

Exit codes: 0 balanced, or ended by Ctrl-C on a terminal; 1 not balanced within the time, or something failed, and
standard error says what.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rich.console import Console

from deploy.local.demo.child import METRICS_PORT
from deploy.local.demo.screen import Screen, save_picture
from deploy.local.demo.story import Story
from deploy.local.demo.wording import Lines
from deploy.local.processes import interrupt_once


class View(Protocol):
    """What shows the story: a screen, or lines."""

    def show_step(self, what: str) -> AbstractContextManager[None]: ...
    def playing(self, story: Story) -> AbstractContextManager[None]: ...
    def show(self, story: Story) -> None: ...
    def end(self, story: Story) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run ends by itself: after ``seconds`` of play, or as soon as it is balanced; both may be off."""

    seconds: float | None
    until_balanced: bool

    def are_reached(self, story: Story, *, elapsed_s: float) -> bool:
        """Whether the play is over."""
        if self.until_balanced and story.is_balanced:
            return True
        return self.seconds is not None and elapsed_s >= self.seconds


class _Stage(Protocol):
    @property
    def story(self) -> Story: ...


StageT = TypeVar("StageT", bound=_Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What the command line asks of the stage."""

    metrics_port: int | None = None
    """Port of the metrics page; None for any free one."""
    standby: bool = False
    """Whether a second controller stands by, and the first one is killed."""
    extensible: bool = False
    """Whether Pulsar runs its extensible load manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo(Generic[StageT]):
    """A demo that can be run from a shell."""

    module: str
    description: str
    plain_seconds: float
    """Without a terminal it ends after so many seconds, start-up not counted."""
    staged: Callable[[Path, View, StageOptions], AbstractContextManager[StageT]]
    """Starts everything in a directory, and stops it."""
    has_standby: bool = False
    """Whether it can run two controllers."""
    has_extensible: bool = False
    """Whether it can run Pulsar's extensible load manager."""
    play: Callable[[StageT, View, Limits], None]
    errors: tuple[type[Exception], ...]
    """Errors that may occur; the text of each says what to do."""
    interruptions: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    """What Ctrl-C raises, here or in a client's library that waits for an answer."""

    def main(self) -> int:
        """Run it; returns the exit code."""
        args = self._arguments()
        interrupt_once()
        console = Console()
        on_terminal = console.is_terminal and sys.stdout.isatty()
        view: View = Screen(console) if on_terminal else Lines()
        seconds = args.seconds if args.seconds is not None or on_terminal else self.plain_seconds
        try:
            limits = Limits(seconds=seconds, until_balanced=not on_terminal)
            options = StageOptions(
                metrics_port=args.metrics_port, standby=args.standby, extensible=args.extensible
            )
            story = self._run(view, limits, args.picture, options)
        except self.errors as error:
            print(f"the demo failed: {error}", file=sys.stderr)
            return 1
        if on_terminal and seconds is None:
            return 0
        return 0 if story is not None and story.is_balanced else 1

    def _run(self, view: View, limits: Limits, picture: Path | None, options: StageOptions) -> Story | None:
        """The story as far as it got, None if Ctrl-C came before it began. Its directory stays after a failure."""
        directory = Path(tempfile.mkdtemp(prefix="trimtab-demo-"))
        story = None
        try:
            with self.staged(directory, view, options) as stage:
                story = stage.story
                self.play(stage, view, limits)
        except self.interruptions:
            print("stopped", file=sys.stderr)
        if story is not None:
            view.end(story)
            if picture is not None:
                save_picture(story, picture)
        shutil.rmtree(directory)
        return story

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=self.description)
        parser.add_argument(
            "--seconds",
            type=float,
            help=f"play at most this long, start-up not counted (without a terminal: {self.plain_seconds:g}, and at "
            "most until it is balanced; on a terminal: until Ctrl-C)",
        )
        parser.add_argument(
            "--metrics-port",
            type=int,
            help=f"serve metrics here (default: {METRICS_PORT}, where Prometheus looks, or another if it is taken)",
        )
        if self.has_standby:
            parser.add_argument(
                "--standby",
                action="store_true",
                help="run two controllers, and kill the one that leads after some rounds",
            )
        else:
            parser.set_defaults(standby=False)
        if self.has_extensible:
            parser.add_argument(
                "--extensible", action="store_true", help="run Pulsar's extensible load manager (PIP-192)"
            )
        else:
            parser.set_defaults(extensible=False)
        parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the last screen as SVG")
        return parser.parse_args()
