"""`python -m deploy.local.demo [--pulsar]`: starts everything, plays until Ctrl-C (or until balanced), stops everything.

It is one loop without threads of its own: read the topics, let the world go on, draw.

Exit codes: 0 balanced, or ended by Ctrl-C on a terminal; 1 not balanced within the time, or something failed, and
standard error says what.
"""

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pulsar as pulsar_client
from kafka.errors import KafkaError
from rich.console import Console

from deploy.local.demo.screen import Screen, save_picture
from deploy.local.demo.story import Story
from deploy.local.demo.topics import Topics
from deploy.local.demo.trimtab import (
    ROOT,
    STANDBY_ENVIRONMENT,
    USUAL_PORTS,
    Pair,
    Trimtab,
    free_metrics_port,
    typed_program,
)
from deploy.local.demo.wording import Lines
from deploy.local.demo.worlds import World, fleet_world, pulsar_world
from deploy.local.kafka import LocalKafka
from deploy.local.processes import LocalError, interrupt_once
from policies.shedding import fleet_planner
from streaming.process.exits import words_of
from streaming.pulsar.http import AdminError
from streaming.settings import load
from streaming.spark.jars import JarError, JavaError

HEAR_S = 0.2
"""How long one read of the topics waits; the screen is drawn after each."""
PLAIN_SECONDS = 300.0
"""Without a terminal it ends after so long, start-up not counted. Two idle cores need half a minute with the fleet and 90 s with
Pulsar."""
ERRORS = (LocalError, JarError, JavaError, KafkaError, AdminError, pulsar_client.PulsarException)
"""The text of each says what to do."""
INTERRUPTIONS = (KeyboardInterrupt, pulsar_client.Interrupted)
"""What Ctrl-C raises, here or in a client's library that waits for an answer."""


class View(Protocol):
    """What shows the story: a screen, or lines."""

    def show_step(self, what: str) -> AbstractContextManager[None]: ...
    def playing(self, story: Story) -> AbstractContextManager[None]: ...
    def show(self, story: Story) -> None: ...
    def end(self, story: Story) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs."""

    kafka: LocalKafka
    world: World
    programs: Sequence[Trimtab]
    pair: Pair | None
    topics: Topics
    story: Story

    def check(self) -> None:
        """Raise LocalError if something has ended by itself."""
        self.kafka.check()
        self.world.check()
        for program in self.programs:
            program.check()


@contextmanager
def _set_stage(directory: Path, view: View, args: argparse.Namespace) -> Iterator[Stage]:
    """Start Kafka, the world, the topics and trimtab, in this order, and stop them in the reverse one."""
    with ExitStack() as stack:
        kafka = LocalKafka(directory / "kafka")
        with view.show_step("starting Kafka"):
            stack.enter_context(kafka)
        world = stack.enter_context(
            pulsar_world(directory, view.show_step, extensible=args.extensible)
            if args.pulsar
            else fleet_world(kafka.bootstrap)
        )

        def program(command: Sequence[str], *, log: str, port: int | None = None) -> Trimtab:
            made = Trimtab(
                directory,
                bootstrap=kafka.bootstrap,
                metrics_port=free_metrics_port(command[0]) if port is None else port,
                settings=world.settings_file,
                command=command,
                log=log,
                environment={**world.environment, **(STANDBY_ENVIRONMENT if args.standby else {})},
            )
            stack.callback(made.stop)
            return made

        controller = program(["run"], port=args.metrics_port, log="trimtab.log")
        programs = [controller, *(program(each, log=f"{each[0]}.log") for each in world.commands)]
        with view.show_step("creating the topics"):
            controller.create_topics()
        settings = load(file=world.settings_file, flags={}, environ={}).settings
        topics = stack.enter_context(Topics(kafka.bootstrap, settings))
        with view.show_step(
            " and ".join(["starting trimtab on Spark", *(each[0] for each in world.commands)])
        ):
            for each in programs:
                each.start()
            controller.wait_until_ready()
        pair = None
        if args.standby:
            standby = program(["run"], log="standby.log")
            pair = Pair(controller, standby)
            programs.append(standby)
            with view.show_step("starting a second trimtab, which stands by"):
                standby.start()
                standby.wait_until_ready()
        story = Story(
            acceptable_points=settings.pulsar.section_of(fleet_planner.POLICY).acceptable_spread_points,
            limits=settings.pulsar.split.limits(),
            metrics_url=controller.metrics_url,
            command=f"{typed_program()} status --input kafka://{kafka.bootstrap}",
            settings_file=str(world.settings_file.relative_to(ROOT)),
        )
        yield Stage(kafka=kafka, world=world, programs=programs, pair=pair, topics=topics, story=story)


def _play(stage: Stage, view: View, *, seconds: float | None, until_balanced: bool) -> None:
    """Read the topics, let the world go on and draw, until the time is over, the fleet is balanced or Ctrl-C comes."""
    story, ends_s = stage.story, math.inf if seconds is None else time.monotonic() + seconds
    with view.playing(story):
        while time.monotonic() < ends_s and not (until_balanced and story.is_balanced):
            stage.check()
            received = stage.topics.receive(HEAR_S)
            for each in received:
                story.observe(each)
            stage.world.advance(received)
            if stage.pair is not None:
                stage.pair.follow(story)
            view.show(story)


def main() -> int:
    """Run the demo; returns the exit code."""
    args = _arguments()
    interrupt_once()
    console = Console()
    on_terminal = console.is_terminal and sys.stdout.isatty()
    view: View = Screen(console) if on_terminal else Lines()
    seconds = args.seconds if args.seconds is not None or on_terminal else PLAIN_SECONDS
    directory = Path(tempfile.mkdtemp(prefix="trimtab-demo-"))  # stays after a failure
    story = None
    try:
        with _set_stage(directory, view, args) as stage:
            story = stage.story
            _play(stage, view, seconds=seconds, until_balanced=not on_terminal)
    except INTERRUPTIONS:
        print("stopped", file=sys.stderr)
    except ERRORS as error:
        print(f"the demo failed: {words_of(error)}", file=sys.stderr)
        return 1
    if story is not None:
        view.end(story)
        if args.picture is not None:
            save_picture(story, args.picture)
    shutil.rmtree(directory)
    if on_terminal and seconds is None:
        return 0
    return 0 if story is not None and story.is_balanced else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.demo",
        description="Run a small, unbalanced fleet, and trimtab, which balances it.",
    )
    parser.add_argument(
        "--pulsar", action="store_true", help="run a real Pulsar cluster, not a simulated fleet"
    )
    parser.add_argument(
        "--extensible", action="store_true", help="with --pulsar: run its extensible load manager (PIP-192)"
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="run two controllers, and kill the one that leads after some rounds",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"play at most this long, start-up not counted (without a terminal: {PLAIN_SECONDS:g}, and at most until it "
        "is balanced; on a terminal: until Ctrl-C)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        help=f"serve metrics here (default: {USUAL_PORTS['run']}, where Prometheus looks, or another if it is taken)",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the last screen as SVG")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
