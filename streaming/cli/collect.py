"""``trimtab collect``: read a cluster's brokers and write their load reports."""

import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from streaming.cli.options import (
    example,
    input_option,
    with_options,
)
from streaming.cli.service import (
    kafka_target,
    pulsar_target,
    refuse_errors,
    run_service,
    service_options,
)
from streaming.process.exits import Refused
from streaming.settings import Settings
from streaming.transport.side import EventSink, LineEvents

if TYPE_CHECKING:
    from streaming.collector.collector import Collector
    from streaming.collector.kafka import KafkaCollector
    from streaming.collector.pulsar import PulsarCollector

_OPTIONS = with_options(
    service_options("collector", input_option("Overrides input.url, where the reports are written.")),
    click.option(
        "--stdout",
        is_flag=True,
        help="Write events as lines for `trimtab replay` instead; needs no input topic.",
    ),
    click.option("--once", is_flag=True, help="Read the brokers once, then end."),
)


class _Given(TypedDict):
    """What was given on the command line."""

    settings: Settings
    stdout: bool
    once: bool


@click.group("collect")
def collect_command() -> None:
    """Read a cluster's brokers and write what they report to the input topic."""


@collect_command.command("pulsar", epilog=example("trimtab collect pulsar east-1 --config trimtab.toml"))
@click.argument("cluster")
@_OPTIONS
def pulsar_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Sweep the brokers of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".pulsar] says how it is
    reached. Changes nothing in the cluster.
    """
    settings, target = given["settings"], pulsar_target(given["settings"], cluster)

    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415  httpx and Kafka are imported late
    from streaming.collector.pulsar import PulsarCollector, StartRefused  # noqa: PLC0415

    metrics = CollectorMetrics(cluster)

    def begin(stack: ExitStack) -> "PulsarCollector":
        sink = stack.enter_context(closing(_sink(settings, stdout=given["stdout"])))
        collector = PulsarCollector(settings, metrics, cluster=cluster, target=target, sink=sink)
        return stack.enter_context(closing(collector))

    def sweep_once(collector: "PulsarCollector") -> None:
        _sweep(collector)
        collector.join_facts()

    with refuse_errors(StartRefused):
        run_service("collector", settings, metrics.registry, begin, sweep_once if given["once"] else None)


@collect_command.command("kafka", epilog=example("trimtab collect kafka orders --once --stdout"))
@click.argument("cluster")
@_OPTIONS
def kafka_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Read the reassignments of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".kafka] says how it is
    reached. Changes nothing in the cluster.
    """
    settings, target = given["settings"], kafka_target(given["settings"], cluster)

    from streaming.collector.kafka import (  # noqa: PLC0415
        EVENTS,
        READ_RESULTS,
        KafkaCollector,
    )
    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415
    from streaming.kafka.client import ClusterError  # noqa: PLC0415

    metrics = CollectorMetrics(cluster, results=READ_RESULTS, events=EVENTS)

    def begin(stack: ExitStack) -> "KafkaCollector":
        sink = stack.enter_context(closing(_sink(settings, stdout=given["stdout"])))
        collector = KafkaCollector(settings, metrics, cluster=cluster, target=target, sink=sink)
        return stack.enter_context(closing(collector))

    with refuse_errors(ClusterError):
        run_service("collector", settings, metrics.registry, begin, _sweep if given["once"] else None)


def _sweep(collector: "Collector") -> None:
    if not collector.sweep():
        raise Refused("; ".join(check.detail for check in collector.readiness()))


def _sink(settings: Settings, *, stdout: bool) -> EventSink:
    from streaming.systems import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed

    return LineEvents(sys.stdout.buffer) if stdout else event_sink_of(settings)
