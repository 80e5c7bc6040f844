"""``trimtab collect``: read a cluster's brokers and write their load reports."""

import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from streaming.commands.options import (
    config_option,
    input_option,
    metrics_port_option,
    verbose_option,
    with_options,
)
from streaming.commands.targets import kafka_target, pulsar_target, refusing, serve
from streaming.configured import read_settings
from streaming.exits import Refused
from streaming.logs import log_to_stderr
from streaming.settings import Settings
from streaming.stopping import stopped_by_signals

if TYPE_CHECKING:
    from streaming.collect.collector import Collector
    from streaming.sinks.input_events import EventSink

_OPTIONS = with_options(
    config_option,
    input_option("Overrides input.url, where the reports are written."),
    click.option(
        "--stdout",
        is_flag=True,
        help="Write events as lines for `trimtab replay` instead; needs no input topic.",
    ),
    click.option("--once", is_flag=True, help="One sweep, then end."),
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


@collect_command.command("pulsar")
@click.argument("cluster")
@_OPTIONS
def pulsar_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Sweep the brokers of CLUSTER at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".pulsar] says how it is
    reached. Changes nothing in the cluster.
    """
    settings = _settings(given)
    target = pulsar_target(settings, cluster)

    from streaming.collect.pulsar import PulsarCollector, StartRefused  # noqa: PLC0415  httpx and Kafka come late

    with (
        refusing(StartRefused),
        closing(_sink(settings, stdout=given["stdout"])) as sink,
        closing(PulsarCollector(settings, cluster=cluster, target=target, sink=sink)) as collector,
    ):
        _run(collector, settings, once=given["once"])
        if given["once"]:
            collector.join_facts()


@collect_command.command("kafka")
@click.argument("cluster")
@_OPTIONS
def kafka_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Read what CLUSTER reassigns at least twice a round, for as long as it runs.

    CLUSTER is the name under which it appears in reports and decisions; [targets."CLUSTER".kafka] says how it is
    reached. Changes nothing in the cluster.
    """
    settings = _settings(given)
    target = kafka_target(settings, cluster)

    from streaming.collect.kafka import KafkaCollector  # noqa: PLC0415  Kafka comes late
    from streaming.kafka_admin.connection import ClusterError  # noqa: PLC0415

    with (
        refusing(ClusterError),
        closing(_sink(settings, stdout=given["stdout"])) as sink,
        closing(KafkaCollector(settings, cluster=cluster, target=target, sink=sink)) as collector,
    ):
        _run(collector, settings, once=given["once"])


def _settings(given: _Given) -> Settings:
    flags: dict[str, object] = {"input.url": given["input_url"], "metrics.port": given["metrics_port"]}
    settings = read_settings(given["config"], flags)
    log_to_stderr(settings.controller.log_format, verbose=given["verbose"])
    return settings


def _run(collector: "Collector", settings: Settings, *, once: bool) -> None:
    if once:
        _sweep_once(collector)
        return
    with ExitStack() as stack:
        stack.enter_context(stopped_by_signals(lambda _: collector.stop()))
        serve(stack, settings, collector.metrics.registry, collector.readiness, collector.liveness)
        collector.run()


def _sweep_once(collector: "Collector") -> None:
    if not collector.sweep():
        raise Refused("; ".join(check.detail for check in collector.readiness()))


def _sink(settings: Settings, *, stdout: bool) -> "EventSink":
    from streaming.sinks.event_sink import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed
    from streaming.sinks.input_events import LineEvents  # noqa: PLC0415

    return LineEvents(sys.stdout.buffer) if stdout else event_sink_of(settings)
