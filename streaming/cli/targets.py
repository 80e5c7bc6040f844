"""What ``collect`` and ``execute`` share: the target, refusals, metrics and health."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from streaming.process.exits import Refused, WrongUse
from streaming.settings import KafkaTarget, MetricsSettings, Program, PulsarTarget, Settings, TargetSection
from streaming.transport.errors import NoTopic, PublishError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streaming.process.serve import Check

_LOG = logging.getLogger(__name__)


def pulsar_target(settings: Settings, cluster: str) -> PulsarTarget:
    """How the cluster is reached. Raises ``WrongUse`` naming the section that is missing."""
    return _target(settings, cluster, "pulsar", "admin_url, the address of the cluster's admin API").pulsar


def kafka_target(settings: Settings, cluster: str) -> KafkaTarget:
    """How the cluster is reached. Raises ``WrongUse`` naming the section that is missing."""
    return _target(settings, cluster, "kafka", "bootstrap, addresses of the cluster's brokers").kafka


def _target(settings: Settings, cluster: str, system: str, needed: str) -> TargetSection:
    section = settings.targets.get(cluster)
    if section is None:
        known = ", ".join(sorted(settings.targets)) or "none"
        raise WrongUse(
            f'there is no [targets."{cluster}".{system}] in the settings (targets there: {known}): add it with {needed}'
        )
    return section


@contextmanager
def refuse_errors(*also: type[Exception]) -> Iterator[None]:
    """An input or output that cannot be used, or one of ``also``, ends the command with a message, not with a stack trace."""
    expected: tuple[type[Exception], ...] = (PublishError, NoTopic, *also)
    try:
        yield
    except expected as error:
        raise Refused(str(error)) from error


def serve(
    stack: ExitStack,
    program: Program,
    settings: Settings,
    registry: "CollectorRegistry",
    readiness: "Callable[[], Sequence[Check]]",
    liveness: "Callable[[], Sequence[Check]]",
) -> None:
    """Serve metrics and health until the stack is closed. Raises ``Refused`` where the port is taken."""
    from streaming.process.serve import HealthServer  # noqa: PLC0415  prometheus_client is imported late

    metrics = settings.metrics
    host, port = metrics.host, metrics.port_of(program)
    if metrics.port not in {0, MetricsSettings().port, port}:
        _LOG.warning(
            "metrics.port = %d is the controller's; this %s listens on %d: metrics.%s_port or --metrics-port chooses another",
            metrics.port,
            program,
            port,
            program,
        )
    server = HealthServer(registry, readiness, liveness=liveness, host=host, port=port)
    try:
        url = server.start()
    except OSError as error:
        raise Refused(str(error)) from error
    stack.callback(server.stop)
    _LOG.info("metrics and health at %s", url)
