"""Errors of pyspark and py4j as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

__all__ = ["SparkError", "SparkGone", "spark_errors"]


class SparkError(Exception):
    """Spark failed, or a call of its JVM; what pyspark or py4j raised is the cause."""


class SparkGone(SparkError):
    """Spark's JVM has ended."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what pyspark and py4j raise into ``SparkError``."""
    try:
        yield
    except Py4JNetworkError as error:
        raise SparkGone(str(error)) from error
    except (PySparkException, Py4JError) as error:
        raise SparkError(str(error)) from error
