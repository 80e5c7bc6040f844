"""Errors of pyspark and py4j as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

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
