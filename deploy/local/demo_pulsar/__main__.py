"""`python -m deploy.local.demo_pulsar`: starts everything, shows it until Ctrl-C (or until balanced), stops everything."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pulsar as pulsar_client
from kafka.errors import KafkaError

from deploy.local.demo.child import ROOT, ChildError, Trimtab, free_metrics_port
from deploy.local.demo.fleet import Result
from deploy.local.demo.link import Closed, Decided
from deploy.local.demo.story import Story
from deploy.local.demo.view import Demo, Limits, StageOptions, View
from deploy.local.demo_pulsar.hearing import Hearing, Loads
from deploy.local.demo_pulsar.traffic import Shop
from deploy.local.kafka import LocalKafka, LocalKafkaError
from deploy.local.pulsar import LocalPulsar
from deploy.local.pulsar_jvms import LocalPulsarError
from deploy.local.pulsar_settings import LoadManager
from policies.shedding import fleet_planner
from streaming.pulsar.http import AdminError
from streaming.settings import Settings, load
from streaming.spark.jars import JarError, JavaError

SETTINGS = Path(__file__).with_name("demo.toml")
CLUSTER = "demo"
BROKERS_COUNT = 3
HEAR_S = 0.2
"""How long one read of the topics waits; the screen is drawn after each."""
PLAIN_SECONDS = 300.0
"""Without a terminal; two idle cores need about 90 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs."""

    kafka: LocalKafka
    pulsar: LocalPulsar
    children: Sequence[Trimtab]
    hearing: Hearing
    story: Story

    def check(self) -> None:
        """Raise LocalKafkaError, LocalPulsarError or ChildError if something has ended by itself."""
        self.kafka.check()
        self.pulsar.check()
        for child in self.children:
            child.check()


@contextmanager
def _set_stage(directory: Path, view: View, options: StageOptions) -> Iterator[Stage]:
    """Start Pulsar with its traffic, Kafka, the application, collector and executor; stop them in the reverse order."""
    with ExitStack() as stack:
        manager: LoadManager = "extensible" if options.extensible else "modular"
        pulsar = LocalPulsar(directory / "pulsar", brokers=BROKERS_COUNT, load_manager=manager)
        with view.show_step(
            f"starting Pulsar: ZooKeeper, a bookie and {BROKERS_COUNT} brokers with the {manager} load manager"
        ):
            stack.enter_context(pulsar)
        kafka = LocalKafka(directory / "kafka")
        with view.show_step("starting Kafka"):
            stack.enter_context(kafka)
        shop = Shop(pulsar)
        with view.show_step("putting all bundles on one broker"):
            shop.open()
        with view.show_step("starting traffic"):
            stack.enter_context(shop.busy(directory / "traffic.log"))
        file = _settings_file(directory, pulsar)
        settings = load(file=file, flags={}, environ={}).settings
        port = free_metrics_port() if options.metrics_port is None else options.metrics_port
        children = [
            stack.enter_context(
                Trimtab(directory, bootstrap=kafka.bootstrap, metrics_port=at, settings=file, command=command)
            )
            for at, command in (
                (port, ("run",)),
                (0, ("collect", "pulsar", CLUSTER)),
                (0, ("execute", "pulsar", CLUSTER)),
            )
        ]
        with view.show_step("creating the topics"):
            children[0].create_topics()
        hearing = stack.enter_context(_hearing(kafka, settings))
        with view.show_step("starting trimtab on Spark, the collector and the executor"):
            for child in children:
                child.start()
            children[0].wait_until_ready()
        yield Stage(
            kafka=kafka,
            pulsar=pulsar,
            children=children,
            hearing=hearing,
            story=_story(settings, kafka, children[0]),
        )


def _settings_file(directory: Path, pulsar: LocalPulsar) -> Path:
    """The shipped settings, and where this cluster's admin API is."""
    file = directory / "trimtab.toml"
    target = f'\n[targets."{CLUSTER}".pulsar]\nadmin_url = "{pulsar.admin_url}"\n'
    file.write_text(SETTINGS.read_text(encoding="utf-8") + target, encoding="utf-8")
    return file


def _hearing(kafka: LocalKafka, settings: Settings) -> Hearing:
    capacity = settings.pulsar.capacity.messages_per_s
    assert capacity is not None, f"{SETTINGS} declares the brokers' capacity"
    loads = Loads(capacity_messages_per_s=capacity)
    return Hearing(kafka.bootstrap, settings, cluster=CLUSTER, loads=loads)


def _story(settings: Settings, kafka: LocalKafka, application: Trimtab) -> Story:
    return Story(
        acceptable_points=settings.pulsar.of_policy(fleet_planner.POLICY).acceptable_spread_points,
        limits=settings.pulsar.split.limits(),
        metrics_url=application.metrics_url,
        bootstrap=kafka.bootstrap,
        settings_file=str(SETTINGS.relative_to(ROOT)),
    )


def _play(stage: Stage, view: View, limits: Limits) -> None:
    """Read the topics and draw, until a limit is reached or Ctrl-C comes."""
    began_s = time.monotonic()
    with view.playing(stage.story):
        while not limits.are_reached(stage.story, elapsed_s=time.monotonic() - began_s):
            stage.check()
            for received in stage.hearing.receive(HEAR_S):
                match received:
                    case Closed():
                        stage.story.observe_round(received)
                    case Decided():
                        stage.story.observe_decision(received)
                    case Result():
                        stage.story.observe_result(received)
                    case _:
                        stage.story.swept(received)
            view.show(stage.story)


def main() -> int:
    """Run the demo; returns the exit code."""
    return Demo(
        module="deploy.local.demo_pulsar",
        description="Run a small, unbalanced Pulsar cluster, and trimtab, which balances it.",
        plain_seconds=PLAIN_SECONDS,
        has_extensible=True,
        staged=_set_stage,
        play=_play,
        interruptions=(KeyboardInterrupt, pulsar_client.Interrupted),
        errors=(
            LocalKafkaError,
            LocalPulsarError,
            ChildError,
            JarError,
            JavaError,
            KafkaError,
            AdminError,
            pulsar_client.PulsarException,
        ),
    ).main()


if __name__ == "__main__":
    sys.exit(main())
