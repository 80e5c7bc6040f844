"""``trimtab notify``: send messages to people, in the channels that they use."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.attending import attend
from streaming.cli.configured import read_settings
from streaming.cli.options import (
    config_option,
    example,
    input_option,
    metrics_port_option,
    output_option,
    verbose_option,
    with_options,
)
from streaming.cli.targets import refuse_errors
from streaming.process.exits import WrongUse
from streaming.process.logs import log_to_stderr
from streaming.process.stopping import stopped_by_signals
from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.notifier.loop import NotifierLoop
    from streaming.notifier.metrics import NotifierMetrics

_RECORDS_MAX = 500


@click.command("notify", epilog=example("trimtab notify --config trimtab.toml"))
@with_options(
    config_option,
    input_option("Overrides input.url, which is also the output's address if output.url is not set."),
    output_option("Overrides output.url, where decisions and summaries are read."),
    click.option("--once", is_flag=True, help="Send what is waiting, then end."),
    metrics_port_option,
    verbose_option,
)
def notify_command(
    config: Path | None,
    input_url: str | None,
    output_url: str | None,
    metrics_port: int | None,
    *,
    once: bool,
    verbose: bool,
) -> None:
    """Tell the receivers of [notify."NAME"] about decisions, proposals, holds, findings and failures, for as long as it runs.

    It reads the topics of actions and the audit topic, and remembers how far it has read. A first start begins with the last hour.
    """
    settings = read_settings(
        config, {"input.url": input_url, "output.url": output_url, "metrics.notifier_port": metrics_port}
    )
    log_to_stderr(settings.controller.log_format, verbose=verbose)
    if not settings.notify:
        raise WrongUse(
            'no receiver is configured: add one to the settings file, such as [notify."ops"] with url_file and format = "slack"'
        )

    from streaming.notifier.metrics import NotifierMetrics  # noqa: PLC0415  Kafka and httpx are imported late

    metrics = NotifierMetrics(settings.notify)
    if not once:
        metrics.show_poll(time.time())
        with refuse_errors():
            attend(
                "notifier",
                settings,
                metrics.registry,
                lambda stack: _start(stack, settings, metrics),
                lambda loop: loop.run(),
            )
        return
    with refuse_errors(), ExitStack() as stack:
        loop = _start(stack, settings, metrics)
        stack.enter_context(stopped_by_signals(lambda _: loop.stop()))
        loop.run(once=True)


def _start(stack: ExitStack, settings: Settings, metrics: "NotifierMetrics") -> "NotifierLoop":
    from streaming.notifier.loop import NotifierLoop, Source  # noqa: PLC0415  Kafka and httpx are imported late
    from streaming.ports.actions import Epochs  # noqa: PLC0415
    from streaming.systems.actions import records_of  # noqa: PLC0415

    names = settings.topics
    roles = {"actions": names.actions, "audit": names.audit}
    if any(each.dry_run or "proposals" in each.kinds for each in settings.notify.values()):
        roles["dry-run"] = names.actions_dry_run

    def source(role: str, topic: str) -> Source:
        epochs = Epochs()
        records = records_of(
            stack,
            settings,
            topic=topic,
            group=f"trimtab-notify-{settings.controller.name}-{role}",
            cluster=settings.controller.name,
            epochs=epochs,
            records_max=_RECORDS_MAX,
        )
        return Source(records, epochs)

    sources = {topic: source(role, topic) for role, topic in roles.items()}
    loop = NotifierLoop(sources, settings.notify, metrics, clock_s=time.time)
    stack.callback(loop.close)
    return loop
