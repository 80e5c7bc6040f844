"""``trimtab execute``: carry decisions out on a cluster."""

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from streaming.cli.options import example, input_option, output_option, with_options
from streaming.cli.service import kafka_target, pulsar_target, refuse_errors, run_service, service_options
from streaming.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.executor.kafka import ThrottleLoop
    from streaming.executor.metrics import ExecutorMetrics
    from streaming.executor.pulsar import ExecutorLoop

_OPTIONS = with_options(
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


class _Given(TypedDict):
    """What was given on the command line."""

    settings: Settings
    dry_run: bool
    once: bool


@click.group("execute")
def execute_command() -> None:
    """Carry decisions out on a cluster, verify them, and write what became of each to the input topic."""


@execute_command.command("pulsar", epilog=example("trimtab execute pulsar east-1 --config trimtab.toml"))
@click.argument("cluster")
@_OPTIONS
def pulsar_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Carry out the unloads and splits of CLUSTER, for as long as it runs.

    [targets."CLUSTER".pulsar] says how it is reached; its token must be a super-user's. Only the topic of actions is
    read: what a controller in dry-run decides is never obeyed.
    """
    settings, target = given["settings"], pulsar_target(given["settings"], cluster)

    from streaming.executor.metrics import ExecutorMetrics  # noqa: PLC0415  httpx and Kafka are imported late
    from streaming.executor.pulsar import start  # noqa: PLC0415
    from streaming.pulsar.http import AdminError, CredentialsError  # noqa: PLC0415

    metrics = ExecutorMetrics(cluster)

    def begin(stack: ExitStack) -> "ExecutorLoop":
        return start(stack, settings, metrics, cluster=cluster, target=target, dry_run=given["dry_run"])

    with refuse_errors(AdminError, CredentialsError):
        _run(begin, metrics, settings, once=given["once"])


@execute_command.command("kafka", epilog=example("trimtab execute kafka orders --config trimtab.toml"))
@click.argument("cluster")
@_OPTIONS
def kafka_command(cluster: str, **given: Unpack[_Given]) -> None:
    """Set, change and take off the throttle of CLUSTER's reassignments, for as long as it runs.

    [targets."CLUSTER".kafka] says how it is reached; it needs DESCRIBE and ALTER_CONFIGS on the cluster and the topics that move.
    Only the topic of actions is read: what a controller in dry-run decides is never obeyed.
    """
    settings, target = given["settings"], kafka_target(given["settings"], cluster)

    from streaming.executor.kafka import start  # noqa: PLC0415  Kafka is imported late
    from streaming.executor.metrics import THROTTLE_KIND, ExecutorMetrics  # noqa: PLC0415
    from streaming.kafka.client import ClusterError  # noqa: PLC0415

    metrics = ExecutorMetrics(cluster, kinds=(THROTTLE_KIND,))

    def begin(stack: ExitStack) -> "ThrottleLoop":
        return start(stack, settings, metrics, cluster=cluster, target=target, dry_run=given["dry_run"])

    with refuse_errors(ClusterError):
        _run(begin, metrics, settings, once=given["once"])


def _run(
    begin: "Callable[[ExitStack], ExecutorLoop | ThrottleLoop]",
    metrics: "ExecutorMetrics",
    settings: Settings,
    *,
    once: bool,
) -> None:
    if not once:
        metrics.show_poll(time.time())  # so that an endless wait raises the alert, too
    run_once = (lambda loop: loop.run(once=True)) if once else None
    run_service("executor", settings, metrics.registry, begin, run_once)
