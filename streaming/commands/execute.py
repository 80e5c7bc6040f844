"""``trimtab execute``: carry decisions out on a cluster."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.commands.targets import kafka_target, pulsar_target, read_settings, stop_on_signals
from streaming.exits import Refused
from streaming.logs import log_to_stderr
from streaming.settings import PulsarTarget, Settings

if TYPE_CHECKING:
    from streaming.execute.kafka import ThrottleLoop
    from streaming.execute.pulsar import ExecutorLoop

_LOG = logging.getLogger(__name__)


@click.group("execute")
def execute_command() -> None:
    """Carry decisions out on a cluster, verify them, and write what became of each to the input topic."""


@execute_command.command("pulsar")
@click.argument("cluster")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Settings file; ./trimtab.toml if there is one.",
)
@click.option("--input", "input_url", metavar="URL", help="Overrides input.url, where results are written.")
@click.option("--output", "output_url", metavar="URL", help="Overrides output.url, where actions are read.")
@click.option("--dry-run", is_flag=True, help="Check every action against the cluster, but change nothing.")
@click.option("--once", is_flag=True, help="Deal with the actions that are there, then end.")
@click.option("--metrics-port", type=int, help="Overrides metrics.port; 0 takes a free one.")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def pulsar_command(
    cluster: str,
    config: Path | None,
    input_url: str | None,
    output_url: str | None,
    metrics_port: int | None,
    *,
    dry_run: bool,
    once: bool,
    verbose: bool,
) -> None:
    """Carry out the unloads and splits of CLUSTER, for as long as it runs.

    [targets."CLUSTER".pulsar] says how it is reached; its token must be a super-user's. Only the topic of actions is
    read: what a controller in dry-run decides is never obeyed.
    """
    flags: dict[str, object] = {
        "input.url": input_url,
        "output.url": output_url,
        "metrics.port": metrics_port,
    }
    settings = read_settings(config, flags)
    target = pulsar_target(settings, cluster)
    log_to_stderr(settings.controller.log_format, verbose=verbose)

    from streaming.sinks import PublishError  # noqa: PLC0415  httpx and Kafka come late

    with ExitStack() as stack:
        loop = _loop(stack, settings, cluster, target, dry_run=dry_run)
        if not once:
            _serve(stack, loop, settings)
        stop_on_signals(loop.stop)
        try:
            loop.run(once=once)
        except PublishError as error:
            raise Refused(str(error)) from error


@execute_command.command("kafka")
@click.argument("cluster")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Settings file; ./trimtab.toml if there is one.",
)
@click.option("--input", "input_url", metavar="URL", help="Overrides input.url, where results are written.")
@click.option("--output", "output_url", metavar="URL", help="Overrides output.url, where actions are read.")
@click.option("--dry-run", is_flag=True, help="Check every action against the cluster, but change nothing.")
@click.option("--once", is_flag=True, help="Deal with the actions that are there, then end.")
@click.option("--metrics-port", type=int, help="Overrides metrics.port; 0 takes a free one.")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def kafka_command(
    cluster: str,
    config: Path | None,
    input_url: str | None,
    output_url: str | None,
    metrics_port: int | None,
    *,
    dry_run: bool,
    once: bool,
    verbose: bool,
) -> None:
    """Set, change and take off the throttle of CLUSTER's reassignments, for as long as it runs.

    [targets."CLUSTER".kafka] says how it is reached; it needs ALTER_CONFIGS on the cluster and on the topics that move.
    Only the topic of actions is read: what a controller in dry-run decides is never obeyed.
    """
    flags: dict[str, object] = {
        "input.url": input_url,
        "output.url": output_url,
        "metrics.port": metrics_port,
    }
    settings = read_settings(config, flags)
    target = kafka_target(settings, cluster)
    log_to_stderr(settings.controller.log_format, verbose=verbose)

    from streaming.execute.kafka import start  # noqa: PLC0415  Kafka comes late
    from streaming.kafka_admin.connection import ClusterError  # noqa: PLC0415
    from streaming.sinks import PublishError  # noqa: PLC0415
    from streaming.sinks.input_events import NoInputTopic  # noqa: PLC0415

    with ExitStack() as stack:
        try:
            loop = start(stack, settings, cluster=cluster, target=target, dry_run=dry_run)
            if not once:
                _serve(stack, loop, settings)
            stop_on_signals(loop.stop)
            loop.run(once=once)
        except (ClusterError, PublishError, NoInputTopic) as error:
            raise Refused(str(error)) from error


def _loop(
    stack: ExitStack, settings: Settings, cluster: str, target: PulsarTarget, *, dry_run: bool
) -> "ExecutorLoop":
    from streaming.execute.pulsar import start  # noqa: PLC0415
    from streaming.pulsar_admin import AdminError  # noqa: PLC0415
    from streaming.pulsar_admin.http import CredentialsError  # noqa: PLC0415
    from streaming.sinks import PublishError  # noqa: PLC0415
    from streaming.sinks.input_events import NoInputTopic  # noqa: PLC0415

    try:
        return start(stack, settings, cluster=cluster, target=target, dry_run=dry_run)
    except (AdminError, CredentialsError, PublishError, NoInputTopic) as error:
        raise Refused(str(error)) from error


def _serve(stack: ExitStack, loop: "ExecutorLoop | ThrottleLoop", settings: Settings) -> None:
    from streaming.serve import HealthServer  # noqa: PLC0415

    where = settings.metrics
    server = HealthServer(loop.metrics.registry, loop.readiness, host=where.host, port=where.port)
    try:
        url = server.start()
    except OSError as error:
        raise Refused(str(error)) from error
    stack.callback(server.stop)
    _LOG.info("metrics and health at %s", url)
