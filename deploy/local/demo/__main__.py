"""`python -m deploy.local.demo`: starts everything, plays until Ctrl-C (or until balanced), stops everything.

Exit codes: 0 balanced, or ended by Ctrl-C on a terminal; 1 not balanced within the time, or something failed, and
standard error says what.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from kafka.errors import KafkaError
from rich.console import Console

from deploy.local.demo.child import METRICS_PORT, ROOT, SETTINGS, ChildError, Trimtab, free_metrics_port
from deploy.local.demo.fleet import Fleet
from deploy.local.demo.lines import Lines
from deploy.local.demo.link import Closed, Link
from deploy.local.demo.screen import Screen, save_picture
from deploy.local.demo.story import Story
from deploy.local.kafka import LocalKafka, LocalKafkaError
from streaming.jars import JarError, JavaError
from streaming.settings import Settings, load

SWEEP_S = 2.0
"""Two sweeps a round."""
HEAR_S = 0.2
"""How long one look at the topics waits; the screen is drawn as often."""
READY_TIMEOUT_S = 180.0
"""Spark needs about 10 s on two idle cores."""
PLAIN_SECONDS = 120.0


class View(Protocol):
    """What shows the story: a screen, or lines."""

    def doing(self, what: str) -> AbstractContextManager[None]: ...
    def playing(self, story: Story) -> AbstractContextManager[None]: ...
    def show(self, story: Story) -> None: ...
    def end(self, story: Story) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run ends by itself: after ``seconds`` of play, or as soon as it is balanced; both may be off."""

    seconds: float | None
    until_balanced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs."""

    kafka: LocalKafka
    trimtab: Trimtab
    link: Link
    fleet: Fleet
    story: Story
    settings: Settings

    def check(self) -> None:
        """Raise LocalKafkaError or ChildError if Kafka or trimtab has ended by itself."""
        self.kafka.check()
        self.trimtab.check()


@contextmanager
def _staged(directory: Path, view: View, metrics_port: int | None) -> Iterator[Stage]:
    """Start Kafka, the topics and trimtab, in this order, and stop them in the reverse one."""
    settings = load(file=SETTINGS, flags={}, environ={}).settings
    with ExitStack() as stack:
        kafka = LocalKafka(directory / "kafka")
        with view.doing("starting Kafka"):
            stack.enter_context(kafka)
        port = free_metrics_port() if metrics_port is None else metrics_port
        trimtab = Trimtab(directory, bootstrap=kafka.bootstrap, metrics_port=port)
        stack.enter_context(trimtab)
        with view.doing("creating the topics"):
            trimtab.create_topics()
        with view.doing("starting trimtab on Spark"):
            trimtab.start()
            link = stack.enter_context(Link(kafka.bootstrap, settings))
            _wait_until_ready(trimtab)
        fleet = Fleet()
        story = Story(
            low_threshold_points=settings.pulsar.avg_shedder.low_threshold_points,
            limits=settings.pulsar.split.limits(),
            metrics_url=trimtab.metrics_url,
            bootstrap=kafka.bootstrap,
            settings_file=str(SETTINGS.relative_to(ROOT)),
        )
        yield Stage(kafka=kafka, trimtab=trimtab, link=link, fleet=fleet, story=story, settings=settings)


def _wait_until_ready(trimtab: Trimtab) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not trimtab.is_ready():
        trimtab.check()
        if time.monotonic() > deadline_s:
            raise ChildError(trimtab.silent(READY_TIMEOUT_S))
        time.sleep(HEAR_S)


def _play(stage: Stage, view: View, limits: Limits) -> None:
    """Hear, follow, sweep, show, until a limit is reached or Ctrl-C comes."""
    rounds = stage.settings.pulsar.rounds
    next_sweep_s = _next_sweep_s(time.time(), lateness_s=rounds.lateness_s)
    began_s = time.monotonic()
    with view.playing(stage.story):
        while not _is_over(stage.story, limits, elapsed_s=time.monotonic() - began_s):
            stage.check()
            _hear(stage)
            if time.time() >= next_sweep_s:
                sweep = stage.fleet.sweep(round(time.time() * 1000))
                stage.link.report(sweep)
                stage.story.swept(sweep)
                next_sweep_s = _next_sweep_s(time.time(), lateness_s=rounds.lateness_s)
            view.show(stage.story)


def _next_sweep_s(now_s: float, *, lateness_s: float) -> float:
    """Sweeps come ``lateness_s`` after even seconds: the tick after a round's end then closes it at once."""
    return ((now_s - lateness_s) // SWEEP_S + 1) * SWEEP_S + lateness_s


def _is_over(story: Story, limits: Limits, *, elapsed_s: float) -> bool:
    if limits.until_balanced and story.is_balanced:
        return True
    return limits.seconds is not None and elapsed_s >= limits.seconds


def _hear(stage: Stage) -> None:
    for heard in stage.link.hear(HEAR_S):
        if isinstance(heard, Closed):
            stage.story.closed(heard)
            continue
        stage.story.decided(heard)
        if heard.action.dry_run:
            continue
        now_ms = round(time.time() * 1000)
        result = stage.fleet.follow(heard.action_id, heard.action, now_ms=now_ms)
        if result is not None:
            stage.story.answered(result)
            stage.link.answer([result], now_ms=now_ms)


def _run(view: View, limits: Limits, picture: Path | None, metrics_port: int | None) -> Story | None:
    """The whole demo; the story as far as it came, None if Ctrl-C was faster. Its directory stays after a failure."""
    directory = Path(tempfile.mkdtemp(prefix="trimtab-demo-"))
    story = None
    try:
        with _staged(directory, view, metrics_port) as stage:
            story = stage.story
            _play(stage, view, limits)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    if story is not None:
        view.end(story)
        if picture is not None:
            save_picture(story, picture)
    shutil.rmtree(directory)
    return story


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """The first signal ends the play; more of them must not disturb the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.demo", description="A small fleet, unbalanced, and trimtab balancing it."
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"play at most this long, start-up not counted (without a terminal: {PLAIN_SECONDS:g}, and at most "
        "until it is balanced; on a terminal: until Ctrl-C)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        help=f"serve metrics here (default: {METRICS_PORT}, where Prometheus looks, or another if it is taken)",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the last screen as SVG")
    return parser.parse_args()


def main() -> int:
    """Run the demo; see the module for the exit codes."""
    asked = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    console = Console()
    on_terminal = console.is_terminal and sys.stdout.isatty()
    view: View = Screen(console) if on_terminal else Lines()
    seconds = asked.seconds if asked.seconds is not None or on_terminal else PLAIN_SECONDS
    try:
        limits = Limits(seconds=seconds, until_balanced=not on_terminal)
        story = _run(view, limits, asked.picture, asked.metrics_port)
    except (LocalKafkaError, ChildError, JarError, JavaError, KafkaError) as error:
        print(f"the demo failed: {error}", file=sys.stderr)
        return 1
    if on_terminal and seconds is None:
        return 0
    return 0 if story is not None and story.is_balanced else 1


if __name__ == "__main__":
    sys.exit(main())
