"""Spark's own log as part of ours: its warnings and errors, formatted and rate-limited like every other line.

The JVM writes to a named pipe through an appender that replaces the console's, and a thread reads the pipe. A pipe needs no port,
and still holds the JVM's last lines when the JVM has died. Executors on other machines keep logs of their own.
"""

import logging
import os
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

import msgspec
from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

_APPENDER, _CONSOLE = "trimtab", "console"
_PATTERN = '{"level":"%level","logger":"%logger","text":"%enc{%m%n%throwable}{JSON}"}%n'
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
_END_S = 2.0
_QUIETER = (
    # Warns of a batch longer than the trigger interval: normal while catching up, and a metric shows how long batches take.
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    # Warns that adaptive execution is off in streaming, as it always is.
    "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream",
    # Warns that a file exists, which each start and each standby tests on an object store. The writer gets an exception for it.
    "org.apache.hadoop.fs.s3a.S3ABlockOutputStream",
    # Warns that a key is not in the state, which is how our code finds out, and that a worker has ended its work.
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer",
    # Warn, for each Kafka client, of options that Spark sets and the client does not use.
    "org.apache.kafka.clients.admin.AdminClientConfig",
    "org.apache.kafka.clients.consumer.ConsumerConfig",
)
"""Loggers whose warnings come in every healthy run; only their errors are logged."""
_NO_JOB = "Failed to cancel job group"
"""Warns, at the stop of a query between two batches, that it works on nothing. Other warnings of its logger count."""


class _Line(msgspec.Struct, frozen=True):
    level: str
    logger: str
    text: str


_decoder = msgspec.json.Decoder(_Line)


class SparkLog:
    """Between entering and leaving, what Spark's JVM logs goes to Python's ``logging``, under the names of its loggers."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001  pyspark has no public way to the JVM
        self._directory = tempfile.TemporaryDirectory(prefix="trimtab-log-")
        self._appender: Any = None
        self._console: Any = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        pipe = Path(self._directory.name) / "pipe"
        os.mkfifo(pipe, 0o600)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # before the writer, which waits for a reader
        self._attach(str(pipe))
        os.set_blocking(reader, True)
        self._thread = threading.Thread(target=_log_lines_of, args=(reader,), name="spark-log", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._detach()
        except Exception as error:  # noqa: BLE001  the JVM may be gone, and its log with it
            _LOG.info("Spark's log output could not be restored: %r", error)
        if self._thread is not None:
            self._thread.join(_END_S)
        self._directory.cleanup()

    def _attach(self, pipe: str) -> None:
        core = self._jvm.org.apache.logging.log4j.core
        layout = core.layout.PatternLayout.newBuilder().withPattern(_PATTERN)
        layout = layout.withAlwaysWriteExceptions(False).build()
        builder = core.appender.FileAppender.newBuilder().withFileName(pipe).withAppend(True)
        self._appender = builder.setName(_APPENDER).setLayout(layout).build()
        self._appender.start()
        root = self._root()
        self._console = root.getAppenders().get(_CONSOLE)
        root.addAppender(self._appender, None, None)
        if self._console is not None:
            root.removeAppender(_CONSOLE)
        error = self._jvm.org.apache.logging.log4j.Level.ERROR
        for name in _QUIETER:
            core.config.Configurator.setLevel(name, error)
        self._context().updateLoggers()

    def _detach(self) -> None:
        root = self._root()
        root.removeAppender(_APPENDER)
        if self._console is not None:
            root.addAppender(self._console, None, None)
        self._context().updateLoggers()
        self._appender.stop()

    def _context(self) -> Any:
        return self._jvm.org.apache.logging.log4j.LogManager.getContext(False)

    def _root(self) -> Any:
        return self._context().getConfiguration().getRootLogger()


def _log_lines_of(reader: int) -> None:
    """Log the lines of the pipe until the JVM closes its end."""
    with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log_line(line)


def log_line(line: str) -> None:
    """Log one line of the pipe; one that is not in the appender's format is logged as it is."""
    try:
        entry = _decoder.decode(line)
    except msgspec.MsgspecError:
        logging.getLogger("spark").warning("%s", line.rstrip())
        return
    if entry.text.startswith(_NO_JOB):
        return
    level = _LEVELS.get(entry.level, logging.INFO)
    logging.getLogger(entry.logger).log(level, "%s", entry.text.rstrip())
