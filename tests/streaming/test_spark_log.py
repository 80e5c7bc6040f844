"""What Spark's JVM and its workers write becomes lines of our log: one for a fault, its stack at debug."""

import json
import logging

import pytest

from streaming.spark.session import JvmOutput, log_line

STACK = "org.x.OuterException: outer\n\tat a.b(C.scala:1)\nCaused by: java.io.IOException: No space left on device\n\t... 3 more\n"


def entry(logger: str, text: str, level: str = "WARN") -> str:
    return json.dumps({"level": level, "logger": logger, "text": text})


@pytest.mark.parametrize(
    ("logger", "text", "told"),
    [
        ("org.x.Y", f"It failed:\n{STACK}", ["It failed: java.io.IOException: No space left on device"]),
        ("org.x.Y", "It is odd.\n", ["It is odd."]),
        (
            "org.apache.spark.sql.execution.datasources.DataSourceManager",
            "The data source trimtab-pulsar replaced a previously registered data source.",
            [],
        ),
        ("org.apache.spark.executor.Executor", f"Exception in task 0.0 in stage 1.0\n{STACK}", []),
        (
            "org.apache.spark.scheduler.TaskSetManager",
            "[queryId = 4e] [batchId = 0] Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): x",
            [],
        ),
        (
            "org.apache.spark.scheduler.TaskSetManager",
            "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor 3): ExecutorLostFailure",
            ["Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.7 executor 3): ExecutorLostFailure"],
        ),
        (
            "org.apache.hadoop.util.Shell",
            "Interrupted while joining on: Thread[#91,Thread-40,5,main]\njava.lang.InterruptedException\n",
            [],
        ),
    ],
)
def test_a_fault_in_the_jvm_is_a_line_with_its_first_cause(
    logger: str, text: str, told: list[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="spark.jvm")
    log_line(entry(logger, text))
    assert [record.getMessage() for record in caplog.records] == told
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    log_line(entry(logger, text))
    assert [record.getMessage() for record in caplog.records] == [text.rstrip()], "the whole, at debug"


def test_of_a_threads_stack_in_java_the_error_and_its_causes_are_told(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="spark.jvm")
    output = JvmOutput()
    told = [
        'Exception in thread "stream execution thread for x" java.lang.StackOverflowError',
        "Caused by: java.io.IOException: No space left on device",
    ]
    frames = ["\tat java.base/java.util.regex.Pattern$CharProperty.match(Pattern.java:1)"] * 3
    for line in (told[0], *frames, told[1], *frames, "\t... 3 more"):
        output.log(f"{line}\n")
    assert [record.getMessage() for record in caplog.records] == told


def test_of_a_workers_stack_the_error_is_told_and_of_each_start_nothing(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="spark.jvm")
    output = JvmOutput()
    for line in (
        "Setting Spark log level to x",
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "ValueError: oh",
        "java.lang.OutOfMemoryError: Java heap space",
        "Traceback (most recent call last):",
        "    code = worker()",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ):
        output.log(f"{line}\n")
    assert [record.getMessage() for record in caplog.records] == [
        "ValueError: oh",
        "java.lang.OutOfMemoryError: Java heap space",
    ]
