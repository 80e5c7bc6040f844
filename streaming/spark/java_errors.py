"""Makes a ``Failure`` of an exception of pyspark or py4j, or of our own that has one as its cause: walks Java's causes through py4j."""

from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streaming.spark.errors import SparkError, spark_errors
from streaming.spark.failing import Cause, Failure, causes_in_traceback, class_name

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
