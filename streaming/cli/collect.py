"""``trimtab collect``: read a cluster's brokers and write their load reports."""

import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from streaming.cli.attending import attend
from streaming.cli.configured import read_settings
from streaming.cli.options import (
    config_option,
    example,
    input_option,
    metrics_port_option,
    verbose_option,
    with_options,
)
from streaming.cli.targets import kafka_target, pulsar_target, refuse_errors
from streaming.process.exits import Refused
from streaming.process.logs import log_to_stderr
from streaming.process.stopping import stopped_by_signals
from streaming.settings import Settings
from streaming.transport.side import EventSink, LineEvents

if TYPE_CHECKING:
    from streaming.collector.collector import Collector
    from streaming.collector.metrics import CollectorMetrics

CollectorKind = TypeVar("CollectorKind", bound="Collector")

_OPTIONS = with_options(
    config_option,
    input_option("Overrides input.url, where the reports are written."),
    click.option(
        "--stdout",
        is_flag=True,
        help="Write events as lines for `trimtab replay` instead; needs no input topic.",
    ),
    click.option("--once", is_flag=True, help="Read the brokers once, then end."),
    metrics_port_option,
    verbose_option,
)


class _Given(TypedDict):
    """What was given on the command line."""

    config: Path | None
    input_url: str | None
    metrics_port: int | None
    stdout: bool
    once: bool
    verbose: bool


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
    settings = _settings(given)
    target = pulsar_target(settings, cluster)

    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415  httpx and Kafka are imported late
    from streaming.collector.pulsar import PulsarCollector, StartRefused  # noqa: PLC0415

    metrics = CollectorMetrics(cluster)

    with refuse_errors(StartRefused):
        make = partial(PulsarCollector, settings, metrics, cluster=cluster, target=target)
        _run(make, metrics, settings, given, finish=PulsarCollector.join_facts)


@collect_command.command("kafka", epilog=example("trimtab collect kafka orders --once --stdout"))
@click.argument("cluster")
@_OPTIONS
def kafka_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Read the reassignments of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".kafka] says how it is
    reached. Changes nothing in the cluster.
    """
    settings = _settings(given)
    target = kafka_target(settings, cluster)

    from streaming.collector.kafka import KafkaCollector  # noqa: PLC0415  Kafka is imported late
    from streaming.collector.kafka_sweep import EVENTS, READ_RESULTS  # noqa: PLC0415
    from streaming.collector.metrics import CollectorMetrics  # noqa: PLC0415
    from streaming.kafka.client import ClusterError  # noqa: PLC0415

    metrics = CollectorMetrics(cluster, results=READ_RESULTS, events=EVENTS)

    with refuse_errors(ClusterError):
        make = partial(KafkaCollector, settings, metrics, cluster=cluster, target=target)
        _run(make, metrics, settings, given)


def _settings(given: _Given) -> Settings:
    flags: dict[str, object] = {
        "input.url": given["input_url"],
        "metrics.collector_port": given["metrics_port"],
    }
    settings = read_settings(given["config"], flags)
    log_to_stderr(settings.controller.log_format, verbose=given["verbose"])
    return settings


def _run(
    make: "Callable[..., CollectorKind]",
    metrics: "CollectorMetrics",
    settings: Settings,
    given: _Given,
    *,
    finish: "Callable[[CollectorKind], None]" = lambda _: None,
) -> None:
    def begin(stack: ExitStack) -> "CollectorKind":
        sink = stack.enter_context(closing(_sink(settings, stdout=given["stdout"])))
        return stack.enter_context(closing(make(sink=sink)))

    if not given["once"]:
        attend("collector", settings, metrics.registry, begin, lambda collector: collector.run())
        return
    with ExitStack() as stack:
        collector = begin(stack)
        stack.enter_context(stopped_by_signals(lambda _: collector.stop()))
        _sweep_once(collector)
        finish(collector)


def _sweep_once(collector: "Collector") -> None:
    if not collector.sweep():
        raise Refused("; ".join(check.detail for check in collector.readiness()))


def _sink(settings: Settings, *, stdout: bool) -> EventSink:
    from streaming.systems import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed

    return LineEvents(sys.stdout.buffer) if stdout else event_sink_of(settings)
