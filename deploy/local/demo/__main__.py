"""`python -m deploy.local.demo`: starts everything, plays until Ctrl-C (or until balanced), stops everything."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka.errors import KafkaError

from deploy.local.demo.child import ROOT, SETTINGS, ChildError, Trimtab, free_metrics_port
from deploy.local.demo.fleet import Fleet
from deploy.local.demo.link import Closed, Link
from deploy.local.demo.pair import SESSION_S, Pair
from deploy.local.demo.story import Story
from deploy.local.demo.view import Demo, Limits, StageOptions, View
from deploy.local.kafka import LocalKafka, LocalKafkaError
from policies.shedding import fleet_planner
from streaming.settings import Settings, load
from streaming.spark.jars import JarError, JavaError

SWEEP_S = 2.0
"""Seconds between sweeps: two sweeps a round."""
HEAR_S = 0.2
"""How long one read of the topics waits; the screen is drawn after each."""
PLAIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs."""

    kafka: LocalKafka
    trimtab: Trimtab
    """The one that was started first."""
    pair: Pair | None
    link: Link
    fleet: Fleet
    story: Story
    settings: Settings

    def check(self) -> None:
        """Raise LocalKafkaError or ChildError if Kafka or trimtab has ended by itself."""
        self.kafka.check()
        (self.pair or self.trimtab).check()


@contextmanager
def _set_stage(directory: Path, view: View, options: StageOptions) -> Iterator[Stage]:
    """Start Kafka, the topics and trimtab, in this order, and stop them in the reverse one."""
    settings = load(file=SETTINGS, flags={}, environ={}).settings
    with ExitStack() as stack:
        kafka = LocalKafka(directory / "kafka")
        with view.show_step("starting Kafka"):
            stack.enter_context(kafka)
        port = free_metrics_port() if options.metrics_port is None else options.metrics_port
        trimtab = stack.enter_context(_trimtab(directory, kafka, port, standby=options.standby))
        with view.show_step("creating the topics"):
            trimtab.create_topics()
        with view.show_step("starting trimtab on Spark"):
            trimtab.start()
            link = stack.enter_context(Link(kafka.bootstrap, settings))
            trimtab.wait_until_ready()
        pair = None
        if options.standby:
            second = _trimtab(directory, kafka, free_metrics_port(), standby=True, log="standby.log")
            pair = Pair(trimtab, stack.enter_context(second))
            with view.show_step("starting a second trimtab, which stands by"):
                second.start()
                second.wait_until_ready()
        fleet = Fleet()
        story = Story(
            acceptable_points=settings.pulsar.of_policy(fleet_planner.POLICY).acceptable_spread_points,
            limits=settings.pulsar.split.limits(),
            metrics_url=trimtab.metrics_url,
            bootstrap=kafka.bootstrap,
            settings_file=str(SETTINGS.relative_to(ROOT)),
        )
        yield Stage(
            kafka=kafka, trimtab=trimtab, pair=pair, link=link, fleet=fleet, story=story, settings=settings
        )


def _trimtab(
    directory: Path, kafka: LocalKafka, port: int, *, standby: bool, log: str | None = None
) -> Trimtab:
    """A `trimtab run` that is not started yet."""
    paired = {"TRIMTAB_CONTROLLER__STANDBY": "true", "TRIMTAB_CONTROLLER__SESSION_S": str(SESSION_S)}
    return Trimtab(
        directory,
        bootstrap=kafka.bootstrap,
        metrics_port=port,
        log=log,
        environment=paired if standby else {},
    )


def _play(stage: Stage, view: View, limits: Limits) -> None:
    """Read the topics, follow decisions, report sweeps and draw, until a limit is reached or Ctrl-C comes."""
    rounds = stage.settings.pulsar.rounds
    next_sweep_s = _next_sweep_s(time.time(), lateness_s=rounds.lateness_s)
    began_s = time.monotonic()
    with view.playing(stage.story):
        while not limits.are_reached(stage.story, elapsed_s=time.monotonic() - began_s):
            stage.check()
            _receive(stage)
            if stage.pair is not None:
                stage.pair.follow_story(stage.story)
            if time.time() >= next_sweep_s:
                sweep = stage.fleet.sweep(round(time.time() * 1000))
                stage.link.report(sweep)
                stage.story.swept(sweep)
                next_sweep_s = _next_sweep_s(time.time(), lateness_s=rounds.lateness_s)
            view.show(stage.story)


def _next_sweep_s(now_s: float, *, lateness_s: float) -> float:
    """The next sweep is ``lateness_s`` after an even second, so that the tick after a round's end closes the round at once."""
    return ((now_s - lateness_s) // SWEEP_S + 1) * SWEEP_S + lateness_s


def _receive(stage: Stage) -> None:
    for received in stage.link.receive(HEAR_S):
        if isinstance(received, Closed):
            stage.story.observe_round(received)
            continue
        stage.story.observe_decision(received)
        if received.action.dry_run:
            continue
        now_ms = round(time.time() * 1000)
        result = stage.fleet.follow(received.action_id, received.action, now_ms=now_ms)
        if result is not None:
            stage.story.observe_result(result)
            stage.link.answer([result], now_ms=now_ms)


def main() -> int:
    """Run the demo; returns the exit code."""
    return Demo(
        module="deploy.local.demo",
        description="Run a small, unbalanced fleet, and trimtab, which balances it.",
        plain_seconds=PLAIN_SECONDS,
        staged=_set_stage,
        play=_play,
        has_standby=True,
        errors=(LocalKafkaError, ChildError, JarError, JavaError, KafkaError),
    ).main()


if __name__ == "__main__":
    sys.exit(main())
