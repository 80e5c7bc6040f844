"""Failures of Spark and of the query: what they are, and whether another start can mend them.

A failure is a chain of causes. Causes from Java carry their class and superclasses, those from Spark an error condition as well.
An exception of a Python worker arrives as the text of its traceback, so the class named there is the only sign.

There are three kinds of failures: no restart mends the *final* ones, which are known; *outages* (brokers, network, a full disk)
are waited out, however long they last; ``Repeats`` decides on all others, because a damaged checkpoint always fails the same way.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from state.controller import RoundLengthError
from state.layouts import FRESH, NewerStateError, OlderStateError
from streaming.process.exits import words_of
from streaming.pulsar.http import AdminError
from streaming.pulsar.positions import DataLoss
from streaming.spark.operator import at_cluster
from streaming.transport.errors import DATA_LOST, SKIP_LOST, NoAnswer, PublishError

_NOT_STARTED = "JAVA_GATEWAY_EXITED"
"""Spark's condition for a JVM that ended before it answered."""


class SparkError(Exception):
    """Spark failed, or a call of its JVM; what pyspark or py4j raised is the cause."""


class SparkGone(SparkError):
    """Spark's JVM has ended."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what pyspark and py4j raise into ``SparkError``."""
    try:
        yield
    except (Py4JNetworkError, ConnectionRefusedError) as error:  # py4j passes the latter on unchanged
        raise SparkGone(str(error)) from error
    except PySparkException as error:
        kind = SparkGone if error.getCondition() == _NOT_STARTED else SparkError
        raise kind(str(error)) from error
    except Py4JError as error:
        raise SparkError(str(error)) from error


REPEATS_MAX = 5
"""So many equal failures in a row are final. With the waits of 1, 2, 4 and 8 s between them and the starts of a query this takes
a minute or two: long enough for a passing fault, short enough for somebody who has just restored a checkpoint."""


def class_name(kind: type) -> str:
    """The name of a class as tracebacks show it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_DATA_LOST = (
    f"{DATA_LOST} (its retention is too short, or the topic was made anew): go on with {SKIP_LOST}, "
    f"or start over with {FRESH}, and raise the topic's retention"
)
_OURS: Mapping[type[Exception], str] = {
    NewerStateError: f"the checkpoint was written by a newer trimtab: run that version, or start over with {FRESH}",
    OlderStateError: f"the checkpoint was written by an older trimtab, whose memory this one cannot read: start over with {FRESH}",
    RoundLengthError: f"the rounds have another length than the checkpoint's: set length_s back, or start over with {FRESH}",
    DataLoss: DATA_LOST,
}
_FINAL_CLASSES = {class_name(kind): remedy for kind, remedy in _OURS.items()}
"""Remedies by class name; these classes are our own, and are raised in workers."""
_FINAL_CONDITIONS: Mapping[str, str] = {"KAFKA_DATA_LOSS": _DATA_LOST}
"""Remedies by Spark's error condition, its sub-conditions included."""

_PASSING: tuple[type[Exception], ...] = (
    NoAnswer,
    PublishError,
    AdminError,
    ConnectionError,
    BrokenPipeError,
    ConnectionAbortedError,
    ConnectionRefusedError,
    ConnectionResetError,
    TimeoutError,
)
_OUTAGE_CLASSES = frozenset(
    {
        "org.apache.kafka.common.errors.RetriableException",
        "java.net.SocketException",
        "java.net.SocketTimeoutException",
        "java.net.UnknownHostException",
        *map(class_name, _PASSING),
    }
)
_OUTAGE_PACKAGES = ("pulsar.", "_pulsar.", "kafka.errors.", "httpx.")
"""Clients of brokers: whatever they raise in a worker is about the brokers."""
_FULL_DISK = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT")
"""A full disk has no class of its own: Java's, RocksDB's and Python's errors only quote the operating system."""


def is_full_disk(text: str) -> bool:
    """Whether an error's text is about a full disk."""
    return _FULL_DISK.search(text) is not None


_EXPLANATIONS: Mapping[str, str] = {
    "Python worker failed to connect back": "this machine was too busy to start a Python process within the 10 s that Spark "
    "waits; if it happens again, give the controller more CPU",
    "Timed out waiting for a node assignment": "no broker of Kafka answers",
    "This server does not host this topic-partition": "a topic of the input is missing, or has no leader now: `trimtab doctor` says "
    "which",
}
"""What Spark's words mean, where they do not say it."""

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?", re.DOTALL)
_VARYING = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-f]+|\d+")
"""Ids, addresses and numbers: they differ between two runs of one failure."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a chain: its class, its superclasses where they are known, and Spark's error condition, if it has one."""

    name: str
    text: str
    condition: str | None = None
    ancestors: frozenset[str] = frozenset()

    def is_a(self, names: frozenset[str]) -> bool:
        """Whether it is of one of these classes."""
        return self.name in names or not names.isdisjoint(self.ancestors)


@dataclass(frozen=True, slots=True)
class Failure:
    """A chain of causes, from the exception that was raised to its first cause; never empty. ``text`` is the whole text, uncut."""

    causes: tuple[Cause, ...]
    text: str

    @property
    def signature(self) -> tuple[str, str | None, str]:
        """Equal for two runs of one failure: the deepest cause without the numbers that differ from run to run."""
        deepest = self.causes[-1]
        return deepest.name, deepest.condition, _VARYING.sub("#", deepest.text)


def causes_in_traceback(text: str) -> Iterator[Cause]:
    """The exceptions that Python tracebacks in a text name, outermost first: the only sign of a worker's exception."""
    _, *blocks = text.split(_TRACEBACK)
    for block in reversed(blocks):
        lines = block.lstrip("\n").splitlines()
        first_line = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
        match = None if first_line is None else _RAISED.fullmatch("\n".join(lines[first_line:]).strip())
        if match is not None:
            yield Cause(match[1], (match[2] or "").strip())


def final_remedy(failure: Failure) -> str | None:
    """What to do about a failure that no restart mends; None for any other."""
    for cause in failure.causes:
        for name in (cause.name, *cause.ancestors):
            if name in _FINAL_CLASSES:
                return _FINAL_CLASSES[name]
        general = (cause.condition or "").partition(".")[0]
        if general in _FINAL_CONDITIONS:
            return _FINAL_CONDITIONS[general]
    return None


def is_outage(failure: Failure) -> bool:
    """Whether it is about brokers, the network or a full disk; such a failure is waited out, however often it comes."""
    return any(
        cause.is_a(_OUTAGE_CLASSES) or cause.name.startswith(_OUTAGE_PACKAGES) or is_full_disk(cause.text)
        for cause in failure.causes
    )


def explain(failure: Failure) -> str:
    """A failure in one line: its first cause, or what Spark's words mean where they do not say it. The rest is ``failure.text``."""
    meaning = next((meaning for words, meaning in _EXPLANATIONS.items() if words in failure.text), None)
    if meaning is not None:
        return meaning
    full = [cause for cause in failure.causes if is_full_disk(cause.text)]
    said = (full or failure.causes)[-1]
    lines = [line.strip() for line in said.text.splitlines() if line.strip()]
    told = next((line[match.start() :] for line in lines if (match := _FULL_DISK.search(line))), None)
    if told is not None:
        return f"a disk is full: {told}"
    text = words_of(lines[0]) if lines else ""
    is_ours = said.name.startswith("streaming.")
    return text if is_ours and text else f"{said.name}: {text}".removesuffix(": ")


_AT_CLUSTER = re.compile(re.escape(at_cluster("x")).replace("'x'", "'([^']*)'"))


def explain_text(error: Exception) -> str:
    """The same from the text of an error alone: no call to Java is made, so any thread may ask."""
    text = str(error)
    own = Cause(class_name(type(error)), text)
    return explain(Failure(causes=(own, *causes_in_traceback(text)), text=text))


def repeated_remedy(failure: Failure, count: int, checkpoint: str, damaged: Sequence[str] = ()) -> str:
    """The message about a failure that keeps coming back although everything around the query works.

    ``damaged`` are files that are known to be damaged; files of the checkpoint that the failure itself names are added.
    """
    place = re.escape(checkpoint.removeprefix("file:").rstrip("/"))
    mentioned = re.findall(rf"(?:[\w+.-]+:/*)?{place}/[^\s'\",;:)\]]+", failure.text)
    files = dict.fromkeys([*damaged, *mentioned])
    clusters = dict.fromkeys(_AT_CLUSTER.findall(failure.text))
    if files:
        named = f"Look at {', '.join(files)}: if it is damaged,"
    elif clusters:
        named = f"Look at the cluster {', '.join(clusters)}: if its memory in the checkpoint is damaged,"
    else:
        named = "If the checkpoint is damaged,"
    return (
        f"the same failure came {count} times in a row without a batch in between, while the brokers answered and the "
        f"checkpoint's store and Spark's local directory could be written and read. {named} put back a copy of "
        f"{checkpoint}, or start over with {FRESH}. The failure:"
    )


@dataclass(slots=True)
class Repeats:
    """Counts equal failures in a row, without a batch in between, while everything around the query works."""

    most: int = REPEATS_MAX
    count: int = 0
    _signature: tuple[str, str | None, str] | None = field(init=False, default=None)
    _batch_id: int | None = field(init=False, default=None)

    def note(self, failure: Failure, *, batch_id: int | None, is_sound: Callable[[], bool]) -> bool:
        """Whether the failure is final now; ``batch_id`` is the newest batch begun.

        ``is_sound`` probes brokers, store and disk; after an outage the count begins anew.
        """
        if is_outage(failure) or not is_sound():
            self.count, self._signature = 0, None
            return False
        if (failure.signature, batch_id) != (self._signature, self._batch_id):
            self.count = 0
        self._signature, self._batch_id = failure.signature, batch_id
        self.count += 1
        return self.count >= self.most


_CAUSES_MAX = 30
"""A limit, because Java does not forbid a chain of causes that is a loop."""


def failure_of(error: Exception) -> Failure:
    """All that is known of an error; a call to Java is made for each of its causes."""
    cause = error.__cause__
    with spark_errors():
        causes = list(
            _causes(cause if isinstance(error, SparkError) and isinstance(cause, Exception) else error)
        )
    return Failure(causes=tuple(causes), text=_describe(causes) or repr(error))


def _describe(causes: Sequence[Cause]) -> str:
    """Every text that no other one contains, whole; that of the first cause comes last."""
    texts = list(dict.fromkeys(cause.text for cause in causes))
    return "\n".join(text for text in texts if not any(text in other for other in texts if other is not text))


def _causes(error: Exception) -> Iterator[Cause]:
    throwable = _throwable(error)
    if throwable is None:
        yield Cause(
            class_name(type(error)), str(error), ancestors=frozenset(map(class_name, type(error).__mro__))
        )
        return
    for _ in range(_CAUSES_MAX):
        yield (cause := _java_cause(throwable))
        yield from causes_in_traceback(cause.text)
        throwable = throwable.getCause()
        if throwable is None:
            return


def _throwable(error: Exception) -> Any:
    """Java's exception behind one of Python's, None where there is none."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None) if isinstance(error, PySparkException) else None


def _java_cause(throwable: Any) -> Cause:
    names, kind = [], throwable.getClass()
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return Cause(
        names[0], str(throwable.getMessage() or ""), _condition(throwable), ancestors=frozenset(names[1:])
    )


def _condition(throwable: Any) -> str | None:
    gateway, jvm = SparkContext._gateway, SparkContext._jvm  # noqa: SLF001  pyspark has no public way
    assert gateway is not None
    assert jvm is not None
    is_sparks = jvm.py4j.reflection.TypeUtil.isInstanceOf("org.apache.spark.SparkThrowable", throwable)
    if not is_sparks:
        return None
    condition = jvm.PythonErrorUtils.getCondition(throwable)
    return None if condition is None else str(condition)
