"""The Spark session with the settings this application was measured with, and Spark's log as part of ours.

RocksDB with changelog checkpoints keeps a batch's commit small; avro lets state variables evolve; unix sockets save
40 ms for each Python stage; the plain file manager saves 50 ms a batch on a local disk, and 80 of 140 requests on S3. Settings in
``spark.extra`` win over all of these.

The JVM writes its warnings and errors to a named pipe through an appender that replaces the console's, and a thread reads the pipe:
they are formatted and counted like every other line, each with its first cause in place of its stack. A pipe needs no port, and still holds the JVM's last lines when the JVM has
died. Executors on other machines keep logs of their own.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import pyspark
from py4j.protocol import Py4JError
from pyspark import java_gateway
from pyspark.sql import SparkSession

from streaming.process.exits import Refused
from streaming.process.logs import logs_stacks
from streaming.settings import Settings
from streaming.spark.jars import CONNECTOR_LOCK, ensure, find_java

_LOG = logging.getLogger(__name__)
_JVM_LOG = logging.getLogger("spark.jvm")
"""What the JVM and its Python workers write to their standard output and error, a line each."""

_STATE = "spark.sql.streaming.stateStore"

_CONF = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "256",
    f"{_STATE}.encodingFormat": "avro",
    f"{_STATE}.checkpointFormatVersion": "2",
    "spark.sql.streaming.minBatchesToRetain": "30",
    # A full disk leaves the unfinished file of the first batch behind. The manifest says which directory counts, so it need not be empty.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # A sort that has spilled reads all its files at once, 300 for a batch of the largest records: each would take 2 MiB of heap.
    "spark.unsafe.sorter.spill.read.ahead.enabled": "false",
    # The JVM's second compiler takes a third of the CPU of a start: Spark runs much code, and most of it seldom.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
}

_LOOPBACK = "127.0.0.1"
"""Where a driver without a cluster listens: no other machine needs to reach it."""
SPARK_VERSION = pyspark.__version__
_OLDEST_SPARK = (4, 2, 1)
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class Session:
    """Spark, as it was started or joined."""

    spark: SparkSession

    def stop(self) -> None:
        """Stop Spark. If its JVM has already ended, that is only logged here: the call that found it out reports it."""
        _JVM_LOG.setLevel(logging.WARNING)  # workers complain when the JVM closes connections
        try:
            self.spark.stop()
        except (Py4JError, OSError) as error:
            _LOG.info("Spark could not be stopped: %r", error)

    def use_plain_files(self) -> None:
        """Use the plain file manager, for a checkpoint on a disk or on S3, unless the settings name another one."""
        if self.spark.conf.get(_FILE_MANAGER, None) is None:
            self.spark.conf.set(_FILE_MANAGER, _PLAIN_FILES)


class Start:
    """One start of Spark, which another thread may cancel: on a busy machine a JVM needs half a minute."""

    def __init__(self) -> None:
        self._jvm: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def connect(self, settings: Settings) -> Session:
        """Start or join Spark. Raises ``Refused`` for one that is too old, and ``jars.JarError`` where the connector cannot be fetched."""
        spark = settings.spark
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        master = spark.master or "local[*]"
        builder = SparkSession.builder.appName(f"trimtab {settings.controller.name}")
        if not _is_submitted():
            builder = builder.master(master)
            if master.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            own_jars = None if spark.jars_dir is None else sorted(Path(spark.jars_dir).glob("*.jar"))
            jars = ensure(CONNECTOR_LOCK) if own_jars is None else own_jars
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
            builder = builder.config("spark.driver.memory", spark.driver_memory)
        partitions = {"spark.sql.shuffle.partitions": str(spark.shuffle_partitions)}
        for name, value in {**_CONF, **partitions, **spark.extra}.items():
            builder = builder.config(name, value)
        with self._separate_jvm(), ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
            made = starter.submit(
                builder.getOrCreate
            ).result()  # in the main thread it would replace our handler of SIGINT
        accumulators: Any = made.sparkContext._accumulatorServer  # noqa: SLF001  it prints a traceback when the JVM goes first
        accumulators.handle_error = _log_lost_connection
        session = Session(made)
        try:
            require_version(made.version)
        except Refused:
            session.stop()
            raise
        return session

    def cancel(self) -> None:
        """End the JVM that is being started, if there is one; ``connect`` fails then."""
        self._is_cancelled = True
        if self._jvm is not None:
            logging.getLogger().addFilter(lambda _: False)  # py4j writes a traceback there when its JVM goes
            with suppress(ProcessLookupError):
                os.killpg(self._jvm.pid, signal.SIGTERM)

    @contextmanager
    def _separate_jvm(self) -> Iterator[None]:
        """The JVM gets a process group of its own, and what it writes becomes lines of our log.

        A stop signal to our whole process group then does not reach the JVM, and the batch in progress is finished first. pyspark
        has an option for neither. A JVM whose Python process has ended ends by itself, whatever its group.
        """
        launcher: Any = java_gateway
        popen = launcher.Popen
        lines, output = os.pipe()
        _JVM_LOG.setLevel(logging.NOTSET)

        def launch(*arguments: Any, **named: Any) -> "subprocess.Popen[bytes]":
            jvm: subprocess.Popen[bytes] = popen(
                *arguments, process_group=0, stdout=output, stderr=output, **named
            )
            self._jvm = jvm
            if self._is_cancelled:
                self.cancel()
            return jvm

        launcher.Popen = launch
        threading.Thread(
            target=_log_lines, args=(lines, JvmOutput().log), name="jvm-output", daemon=True
        ).start()
        try:
            yield
        finally:
            launcher.Popen = popen
            os.close(output)


def _log_lost_connection(_request: object, _client: object) -> None:
    """Called in the thread that meets the error."""
    _LOG.info("the connection for the JVM's accumulators was lost: %r", sys.exc_info()[1])


def require_version(version: str) -> None:
    """Raises ``Refused`` for the version of a Spark that trimtab cannot run on for long, whoever started it."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < _OLDEST_SPARK:
        oldest = ".".join(map(str, _OLDEST_SPARK))
        raise Refused(
            f"this is Spark {version}, which leaves a socket open for each task of a stateful query, until there are none left: "
            f"run Spark {oldest} or newer"
        )


def require_java() -> None:
    """Raises ``streaming.spark.jars.JavaError`` if there is no Java to start Spark with, before anything else is done."""
    if not _is_submitted():
        find_java()


def _log_lines(descriptor: int, log: Callable[[str], None]) -> None:
    """Log each line, until all that write have ended."""
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log(line)


class JvmOutput:
    """Logs what the JVM and its workers print. What each start prints, and every stack, is logged at debug."""

    def __init__(self) -> None:
        self._is_in_stack = False

    def log(self, line: str) -> None:
        """Log one line, unless it is empty."""
        text = line.rstrip()
        is_in_stack = text.startswith("Traceback (") or (self._is_in_stack and line[:1].isspace())
        ends_stack = self._is_in_stack and not is_in_stack
        is_expected = text.startswith(_AT_EACH_START) or _NO_LIBRARY in text
        is_expected |= ends_stack and text.startswith(_GONE)
        is_expected |= text.startswith(_FRAMES)
        self._is_in_stack = is_in_stack
        if text:
            _JVM_LOG.log(logging.DEBUG if is_in_stack or is_expected else logging.INFO, "%s", text)


def _is_submitted() -> bool:
    """Whether ``spark-submit`` started us: it then decides on master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


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
_STREAMING = "org.apache.spark.sql.execution.streaming."
_KNOWN = (
    ("", "Failed to cancel job group"),  # at the stop of a query between two batches: it works on nothing
    (f"{_STREAMING}runtime.MicroBatchExecution", "Disabling AQE"),
    (
        "org.apache.spark.sql.execution.datasources.DataSourceManager",
        "The data source ",
    ),  # ours, at the second start of a process
    # What ends the query: the controller says it in a line, with its cause.
    (f"{_STREAMING}runtime.MicroBatchExecution", "Query "),
    (f"{_STREAMING}checkpointing.CheckpointFileManager", "Error cancelling write"),
    (f"{_STREAMING}state.", "Error "),
    ("org.apache.spark.executor.Executor", "Exception in task"),
    ("org.apache.spark.scheduler.TaskSetManager", "Task "),
    # Spark tries again, and ends the query if that is of no use.
    ("org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin", "Error in attempt"),
    # A query that stops interrupts its thread while it sets the permissions of a file.
    ("org.apache.hadoop.util.Shell", "Interrupted while"),
    # It closes a socket that it has not opened; the failure of the worker before it is told by the query.
    (
        "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkPythonPreInitRunner",
        "failed to close state server socket: java.lang.NullPointerException",
    ),
    # The driver's own clients say it of the same brokers, and Spark ends the query if it cannot go on.
    ("org.apache.kafka.clients.NetworkClient", "Bootstrap broker"),
    ("org.apache.kafka.clients.NetworkClient", "Connection to node"),
)
"""Lines by logger and beginning that are logged at debug only: another line says it, or nothing is wrong."""
_PY4J = logging.getLogger("py4j.clientserver")
_PROXY_FAILED = "There was an exception while executing the Python Proxy"
"""What py4j logs of an error of the batch function, which ends the query, too."""
_LOST_HERE = ("Lost task", " executor driver)")
"""Of a task on this machine, which is not tried again: its error ends the query."""
_OF_QUERY = re.compile(r"(?:\[(?:queryId|batchId|Consumer clientId|AdminClient clientId)[^\]]*\] )+")
_AT_EACH_START = (
    "Picked up JAVA_TOOL_OPTIONS",
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "To adjust logging level",
    "Setting Spark log level",
    "Starting Streaming TransformWithState",
    "Streaming TransformWithState",
)
_NO_LIBRARY = "WARN NativeCodeLoader"
"""Hadoop's libraries for this machine are not there, and not needed."""
_FRAMES = ("\tat ", "\t... ")
"""Lines of a stack in Java; the lines around them name the error of its thread, and its causes."""
_GONE = "BrokenPipeError"
"""How a worker ends whose task was cancelled."""
_RAISED = re.compile(r"(?:Caused by: )?([\w.$]+(?:Exception|Error)\b.*)")


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
        _PY4J.addFilter(_is_news)  # the same filter is added once
        pipe = Path(self._directory.name) / "pipe"
        os.mkfifo(pipe, 0o600)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # before the writer, which waits for a reader
        self._attach(str(pipe))
        os.set_blocking(reader, True)
        self._thread = threading.Thread(
            target=_log_lines, args=(reader, log_line), name="spark-log", daemon=True
        )
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


def log_line(line: str) -> None:
    """Log one line of the pipe; one that is not in the appender's format is logged as it is."""
    try:
        entry = _decoder.decode(line)
    except msgspec.MsgspecError:
        logging.getLogger("spark").warning("%s", line.rstrip())
        return
    level = logging.DEBUG if _is_known(entry) else _LEVELS.get(entry.level, logging.INFO)
    text = entry.text.rstrip() if logs_stacks() else _headline(entry.text)
    logging.getLogger(entry.logger).log(level, "%s", text)


def _is_news(record: logging.LogRecord) -> bool:
    return logs_stacks() or not str(record.msg).startswith(_PROXY_FAILED)


def _is_known(entry: _Line) -> bool:
    text = _OF_QUERY.sub("", entry.text)
    if text.startswith(_LOST_HERE[0]):
        return _LOST_HERE[1] in text
    return any(entry.logger.startswith(logger) and text.startswith(begin) for logger, begin in _KNOWN)


def _headline(text: str) -> str:
    """The first line, and the first cause of the stack that follows it."""
    first, *stack = text.strip().splitlines() or [""]
    raised = [match[1] for line in stack if (match := _RAISED.fullmatch(line))]
    return f"{first.rstrip(': ')}: {raised[-1]}" if raised and raised[-1] not in first else first
