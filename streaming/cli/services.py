"""``trimtab run``, ``collect`` and ``execute``: the programs that run until they are stopped."""

import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from streaming.cli.options import (
    begin_option,
    example,
    input_option,
    metrics_port_option,
    mode_option,
    output_option,
    setting_option,
    target_of,
    verbose_option,
    with_options,
    with_settings,
)
from streaming.cli.service_runner import run_service, service_options
from streaming.process.exits import Refused, raised_as
from streaming.process.logs import log_to_stderr
from streaming.settings import Settings
from streaming.transport.errors import NoTopic, PublishError, StartWith
from streaming.transport.side import Begin, EventSink, LineEvents

if TYPE_CHECKING:
    from streaming.collector.collector import Collector
    from streaming.collector.metrics import CollectorMetrics
    from streaming.executor.kafka import ThrottleLoop
    from streaming.executor.metrics import ExecutorMetrics
    from streaming.executor.pulsar import ExecutorLoop

_LOG = logging.getLogger(__name__)
CollectorKind = TypeVar("CollectorKind", bound="Collector")


@click.command(
    "run", epilog=example("trimtab run --input kafka://broker:9092 --checkpoint /var/lib/trimtab/checkpoint")
)
@with_settings(
    mode_option,
    setting_option("controller.name", "--name", help="Overrides controller.name."),
    input_option("Where load reports are read: kafka://host:port[,…] or pulsar://…."),
    output_option(
        "Where decisions are written, kafka://… or pulsar://…, whatever the input is; the input's if not given."
    ),
    setting_option(
        "controller.standby",
        "--standby/--no-standby",
        default=None,
        help="Overrides controller.standby: wait, warm, while another controller of this name leads, and take over from it.",
    ),
    setting_option("spark.checkpoint", "--checkpoint", metavar="DIR", help="Overrides spark.checkpoint."),
    setting_option(
        "spark.master", "--master", metavar="URL", help="Overrides spark.master, e.g. spark://host:7077."
    ),
    metrics_port_option("metrics.port"),
)
@begin_option("Where a first start reads the input from.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Start over: put the checkpoint aside, forget the marker, averages, hit counts, cooldowns, budgets and actions in flight.",
)
@click.option(
    "--skip-lost",
    is_flag=True,
    help="Go on although the input lost records that were not read yet: no round ever sees them; the audit topic says which.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Trust the checkpoint although the marker disagrees: what was published after it may be published again.",
)
@verbose_option
def run_command(
    settings: Settings, begin: Begin | None, *, fresh: bool, skip_lost: bool, adopt: bool, verbose: bool
) -> None:
    """Read load reports, decide round by round, publish the decisions exactly once.

    Runs until SIGTERM or Ctrl-C, which finish the batch in progress first.
    """
    if fresh and adopt:
        raise click.UsageError("--fresh and --adopt exclude each other: give one of them")
    if fresh and skip_lost:
        raise click.UsageError(
            "--fresh and --skip-lost exclude each other: a fresh start has no lost records to skip"
        )
    for_now = {"--fresh": fresh, "--adopt": adopt, "--skip-lost": skip_lost}
    given = [name for name, is_given in for_now.items() if is_given]
    if settings.controller.standby and given:  # a standby takes over later, when nobody is watching
        raise click.UsageError(
            f"{given[0]} is for a start that leads at once, and a standby goes on where the leader is: start once with "
            f"`trimtab run --no-standby {given[0]}`, and standbys without {given[0]}"
        )
    log_to_stderr(settings.controller.log_format, verbose=verbose)
    first: Begin = round((time.time() - settings.controller.warm_start_s) * 1000)
    if begin is not None:
        first = begin

    from streaming.controller.application import Application  # noqa: PLC0415  Spark takes a second to import

    start_with: StartWith = "fresh" if fresh else "adopt" if adopt else "checkpoint"
    Application(settings, begin=first, start_with=start_with, skip_lost=skip_lost).run()


_collector_options = with_options(
    click.argument("cluster"),
    service_options("collector", input_option("Overrides input.url, where the reports are written.")),
    click.option(
        "--stdout",
        is_flag=True,
        help="Write events as lines for `trimtab replay` instead; needs no input topic.",
    ),
    click.option("--once", is_flag=True, help="Read the brokers once, then end."),
)


@click.group("collect")
def collect_command() -> None:
    """Read a cluster's brokers and write what they report to the input topic."""


@collect_command.command(
    "pulsar",
    short_help="Sweep the brokers of CLUSTER.",
    epilog=example("trimtab collect pulsar east-1 --config trimtab.toml"),
)
@_collector_options
def collect_pulsar_command(settings: Settings, cluster: str, *, stdout: bool, once: bool) -> None:
    """Sweep the brokers of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".pulsar] says how it is
    reached. Changes nothing in the cluster.
    """
    target = target_of(settings, cluster, "pulsar").pulsar

    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415  httpx and Kafka are imported late
    from streaming.collector.pulsar import PulsarCollector, StartRefused  # noqa: PLC0415

    metrics = CollectorMetrics(cluster)
    collector = partial(PulsarCollector, settings, metrics, cluster=cluster, target=target)

    def sweep(collector: PulsarCollector) -> None:
        _sweep(collector)
        collector.join_facts()

    with raised_as(Refused, PublishError, NoTopic, StartRefused):
        _collect(settings, metrics, collector, sweep if once else None, to_stdout=stdout)


@collect_command.command(
    "kafka",
    short_help="Read the reassignments of CLUSTER.",
    epilog=example("trimtab collect kafka orders --once --stdout"),
)
@_collector_options
def collect_kafka_command(settings: Settings, cluster: str, *, stdout: bool, once: bool) -> None:
    """Read the reassignments of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".kafka] says how it is
    reached. Changes nothing in the cluster.
    """
    target = target_of(settings, cluster, "kafka").kafka

    from streaming.collector.kafka import EVENTS, READ_RESULTS, KafkaCollector  # noqa: PLC0415
    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415
    from streaming.kafka.client import ClusterError  # noqa: PLC0415

    metrics = CollectorMetrics(cluster, results=READ_RESULTS, events=EVENTS)
    collector = partial(KafkaCollector, settings, metrics, cluster=cluster, target=target)
    with raised_as(Refused, PublishError, NoTopic, ClusterError):
        _collect(settings, metrics, collector, _sweep if once else None, to_stdout=stdout)


def _collect(
    settings: Settings,
    metrics: "CollectorMetrics",
    collector: Callable[..., CollectorKind],
    once: Callable[[CollectorKind], None] | None,
    *,
    to_stdout: bool,
) -> None:
    from streaming.systems import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed

    def start(stack: ExitStack) -> CollectorKind:
        sink: EventSink = LineEvents(sys.stdout.buffer) if to_stdout else event_sink_of(settings)
        stack.enter_context(closing(sink))
        return stack.enter_context(closing(collector(sink=sink)))

    run_service("collector", settings, metrics.registry, start, once)


def _sweep(collector: "Collector") -> None:
    if not collector.sweep():
        raise Refused("; ".join(check.detail for check in collector.readiness()))


_executor_options = with_options(
    click.argument("cluster"),
    service_options(
        "executor",
        input_option("Overrides input.url, where results are written."),
        output_option("Overrides output.url, where actions are read."),
    ),
    click.option(
        "--dry-run", is_flag=True, help="Check every action against the cluster, but change nothing."
    ),
    click.option("--once", is_flag=True, help="Handle the actions that are waiting, then end."),
)


@click.group("execute")
def execute_command() -> None:
    """Carry decisions out on a cluster, verify them, and write what became of each to the input topic."""


@execute_command.command(
    "pulsar",
    short_help="Carry out the unloads and splits of CLUSTER.",
    epilog=example("trimtab execute pulsar east-1 --config trimtab.toml"),
)
@_executor_options
def execute_pulsar_command(settings: Settings, cluster: str, *, dry_run: bool, once: bool) -> None:
    """Carry out the unloads and splits of CLUSTER, for as long as it runs.

    [targets."CLUSTER".pulsar] says how it is reached; its token must be a super-user's. Only the topic of actions is
    read: what a controller in dry-run decides is never obeyed.
    """
    target = target_of(settings, cluster, "pulsar").pulsar

    from streaming.executor.metrics import ExecutorMetrics  # noqa: PLC0415  httpx and Kafka are imported late
    from streaming.executor.pulsar import start  # noqa: PLC0415
    from streaming.pulsar.http import AdminError, CredentialsError  # noqa: PLC0415

    metrics = ExecutorMetrics(cluster)

    def connect(stack: ExitStack) -> "ExecutorLoop":
        return start(stack, settings, metrics, cluster=cluster, target=target, dry_run=dry_run)

    with raised_as(Refused, PublishError, NoTopic, AdminError, CredentialsError):
        _execute(settings, metrics, connect, cluster, dry_run=dry_run, once=once)


@execute_command.command(
    "kafka",
    short_help="Throttle the reassignments of CLUSTER.",
    epilog=example("trimtab execute kafka orders --config trimtab.toml"),
)
@_executor_options
def execute_kafka_command(settings: Settings, cluster: str, *, dry_run: bool, once: bool) -> None:
    """Set, change and take off the throttle of CLUSTER's reassignments, for as long as it runs.

    [targets."CLUSTER".kafka] says how it is reached; it needs DESCRIBE and ALTER_CONFIGS on the cluster and the topics that move.
    Only the topic of actions is read: what a controller in dry-run decides is never obeyed.
    """
    target = target_of(settings, cluster, "kafka").kafka

    from streaming.executor.kafka import start  # noqa: PLC0415  Kafka is imported late
    from streaming.executor.metrics import THROTTLE_KIND, ExecutorMetrics  # noqa: PLC0415
    from streaming.kafka.client import ClusterError  # noqa: PLC0415

    metrics = ExecutorMetrics(cluster, kinds=(THROTTLE_KIND,))

    def connect(stack: ExitStack) -> "ThrottleLoop":
        return start(stack, settings, metrics, cluster=cluster, target=target, dry_run=dry_run)

    with raised_as(Refused, PublishError, NoTopic, ClusterError):
        _execute(settings, metrics, connect, cluster, dry_run=dry_run, once=once)


def _execute(
    settings: Settings,
    metrics: "ExecutorMetrics",
    connect: "Callable[[ExitStack], ExecutorLoop | ThrottleLoop]",
    cluster: str,
    *,
    dry_run: bool,
    once: bool,
) -> None:
    def start(stack: ExitStack) -> "ExecutorLoop | ThrottleLoop":
        loop = connect(stack)
        _LOG.info(
            "running for %s (%s): reads %s at %s, writes results to %s at %s",
            cluster,
            "dry-run, nothing is changed" if dry_run else "carries actions out",
            settings.topics.actions,
            settings.output_url,
            settings.topics.input,
            settings.input.url,
        )
        return loop

    if not once:
        metrics.show_poll(time.time())  # so that an endless wait raises the alert, too
    run_once = (lambda loop: loop.run(once=True)) if once else None
    run_service("executor", settings, metrics.registry, start, run_once)
