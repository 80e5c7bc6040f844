"""Whether what surrounds the query works: brokers, the checkpoint's store, Spark's local directories.

They are probed after a failure, so that an outage is never taken for a damaged checkpoint. Each probe does what the query would: it
asks the brokers for the topics, writes a file and reads it back.
"""

from collections.abc import Callable, Iterator

from streaming.settings import Settings
from streaming.spark.errors import SparkError, SparkGone
from streaming.spark.probes import probe_local, probe_store
from streaming.spark.session import Session
from streaming.systems import validate_all
from streaming.transport.errors import StartError


def failed_probe(session: Session, settings: Settings) -> str | None:
    """The first problem found, as a sentence; None if all works. Raises ``SparkGone``."""
    probes: Iterator[Callable[[], object]] = iter(
        (
            lambda: validate_all(settings),
            lambda: probe_store(session.spark, settings.spark.checkpoint),
            lambda: probe_local(session.spark),
        )
    )
    for probe in probes:
        try:
            probe()
        except SparkGone:
            raise
        except (StartError, SparkError, OSError) as error:
            return str(error)
    return None
