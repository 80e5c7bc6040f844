"""How a failure of the query or around it is judged: known and final, an outage to wait out, a change, or repeated too often."""

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from state.layouts import NewerStateError
from streaming.controller.environment import Changed, EnvironmentMonitor, Unanswered
from streaming.spark import session
from streaming.spark.failures import (
    REPEATS_MAX,
    Cause,
    Failure,
    Repeats,
    causes_in_traceback,
    class_name,
    explain,
    explain_text,
    final_remedy,
    is_outage,
    repeated_remedy,
)
from streaming.spark.operator import at_cluster
from streaming.transport.checkpoint import describe_exchanged
from streaming.transport.errors import PublishError
from tests.support.processes import until

WORKERS = """
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/trimtab/state/memory.py", line 97, in decode_header
    return _header_decoder.decode(unsealed("header", value))
msgspec.DecodeError: Input data was truncated

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/trimtab/streaming/spark/operator.py", line 120, in handleInputRows
    for record in rows:
state.layouts.NewerStateError: the memory was written by a newer trimtab:
run that version
"""
KAFKA_TIMEOUT = Cause(
    "org.apache.kafka.common.errors.TimeoutException",
    "Timed out waiting for a node assignment",
    ancestors=frozenset({"org.apache.kafka.common.errors.RetriableException", "java.lang.RuntimeException"}),
)


def failure(*causes: Cause) -> Failure:
    return Failure(causes=causes, text="\n".join(cause.text for cause in causes))


def broken(number: int) -> Failure:
    text = (
        f"Malformed log file /checkpoint/offsets/{number}, run 0b9c5f7e-4b1a-4f5e-9a56-6f0d35c1a0{number:02d}"
    )
    return failure(
        Cause("org.apache.spark.sql.streaming.StreamingQueryException", "x"),
        Cause("java.lang.IllegalStateException", text),
    )


def test_the_exceptions_of_a_worker_are_found_in_its_traceback_the_last_raised_first():
    found = list(causes_in_traceback(WORKERS))
    assert [cause.name for cause in found] == ["state.layouts.NewerStateError", "msgspec.DecodeError"]
    assert found[0].text == "the memory was written by a newer trimtab:\nrun that version"
    assert list(causes_in_traceback("no Python here")) == []


def test_a_known_failure_is_final_by_class_or_condition_and_not_by_its_words():
    newer = Cause(class_name(NewerStateError), "whatever it says")
    assert "run that version" in (final_remedy(failure(newer)) or "")
    lost = Cause(
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        "anything",
        condition="KAFKA_DATA_LOSS.START_OFFSET_RESET",
    )
    assert "retention" in (final_remedy(failure(lost)) or "")
    quoted = Cause("java.lang.RuntimeException", "a cluster named NewerStateError or KAFKA_DATA_LOSS")
    assert final_remedy(failure(quoted)) is None


@pytest.mark.parametrize(
    "cause",
    [
        KAFKA_TIMEOUT,
        Cause("java.net.ConnectException", "refused", ancestors=frozenset({"java.net.SocketException"})),
        Cause(class_name(PublishError), "batch 3 could not be published"),
        Cause("_pulsar.ConnectError", "Pulsar error: ConnectError"),
        Cause("ConnectionRefusedError", "[Errno 111] Connection refused"),
        Cause(
            "java.net.SocketTimeoutException", "Timed out while waiting for the Python worker to connect back"
        ),
        Cause("java.io.IOException", "No space left on device"),
        Cause("OSError", "[Errno 28] No space left on device: '/tmp/x'"),
        Cause("org.rocksdb.RocksDBException", "While appending to file: No space left on device"),
    ],
)
def test_an_outage_or_a_full_disk_is_never_final_however_often_it_comes(cause: Cause):
    repeats = Repeats()
    assert is_outage(failure(Cause("java.lang.RuntimeException", "Job aborted"), cause))
    for _ in range(5 * REPEATS_MAX):
        assert not repeats.note(failure(cause), batch_id=0, is_sound=lambda: True)


def test_a_machine_too_busy_to_start_python_is_named_and_others_keep_their_words():
    busy = failure(Cause("org.apache.spark.SparkException", "Python worker failed to connect back."))
    assert explain(busy).startswith("this machine was too busy to start a Python process within the 10 s")
    full = Cause("OSError", "[Errno 28] No space left on device: '/tmp/x'")
    assert explain(failure(full)) == "a disk is full: No space left on device: '/tmp/x'"
    assert explain(broken(1)).endswith(broken(1).causes[-1].text)


@pytest.mark.parametrize(
    ("causes", "line"),
    [
        (
            [
                Cause(
                    "org.apache.spark.SparkException",
                    "[STREAM_FAILED] java.io.IOException: No space left on device",
                ),
                Cause("java.io.IOException", "No space left on device"),
            ],
            "a disk is full: No space left on device",
        ),
        (
            [Cause("x.Outer", "[STREAM_FAILED]\n=== Plan ==="), Cause("a.b.Deep", "what\nat a.b.C")],
            "a.b.Deep: what",
        ),
        ([Cause("streaming.transport.errors.PublishError", "no producer at b:1")], "no producer at b:1"),
        ([Cause("ValueError", "")], "ValueError"),
        (
            [Cause("x.TimeoutException", "Timed out waiting for a node assignment. Call: listNodes")],
            "no broker of Kafka answers",
        ),
        (
            [
                Cause(
                    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
                    "This server does not host this topic-partition.",
                )
            ],
            "a topic of the input is missing, or has no leader now: `trimtab doctor` says which",
        ),
    ],
)
def test_a_failure_is_told_in_one_line_with_its_first_cause(causes: list[Cause], line: str):
    assert explain(failure(*causes)) == line


def test_the_same_failure_is_final_when_it_has_come_often_enough_with_other_numbers_in_it():
    repeats = Repeats()
    message = [repeats.note(broken(n), batch_id=4, is_sound=lambda: True) for n in range(REPEATS_MAX)]
    assert message == [False] * (REPEATS_MAX - 1) + [True]


def test_a_batch_another_failure_or_something_else_that_does_not_work_begins_the_count_anew():
    repeats, sound = Repeats(most=3), [True]

    def note(failed: Failure, batch_id: int = 0) -> bool:
        return repeats.note(failed, batch_id=batch_id, is_sound=lambda: sound[0])

    other = failure(Cause("java.lang.IllegalStateException", "something else"))
    assert not any((note(broken(1)), note(broken(1)), note(other)))
    assert not any((note(broken(1)), note(broken(1)), note(broken(1), batch_id=1)))
    sound[0] = False
    assert not any(note(broken(1), 1) for _ in range(10))
    sound[0] = True
    assert [note(broken(1), 1) for _ in range(3)] == [False, False, True]


def test_the_remedy_names_the_files_of_the_checkpoint_that_the_failure_names():
    text = "Error reading delta file file:/data/ckpt/state/0/1/3.changelog of HDFSStateStore; see /var/log/x"
    message = repeated_remedy(failure(Cause("x", text)), 5, "/data/ckpt")
    assert "Look at file:/data/ckpt/state/0/1/3.changelog: if it is damaged, put back a copy" in message
    assert "/var/log/x" not in message
    assert "5 times in a row" in message
    assert "If the checkpoint is damaged, put back" in repeated_remedy(
        failure(Cause("x", "y")), 5, "/data/ckpt"
    )


def test_the_remedy_names_the_cluster_whose_memory_cannot_be_decoded():
    text = f"Traceback ...\nmsgspec.DecodeError: Input data was truncated\n{at_cluster('east-1')}"
    message = repeated_remedy(failure(Cause("x", text)), 5, "/data/ckpt")
    assert (
        "Look at the cluster east-1: if its memory in the checkpoint is damaged, put back a copy" in message
    )


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("no answer"), Py4JError("gone"), ConnectionRefusedError()]
)
def test_a_jvm_that_is_gone_does_not_hide_why_the_controller_ends(error: Exception):
    class Gone:
        def stop(self) -> None:
            raise error

    def end() -> None:
        spark: Any = Gone()
        try:
            raise ValueError("the reason")
        finally:
            session.Session(spark).stop()

    with pytest.raises(ValueError, match="the reason"):
        end()


WRONG = "topics missing at k:9092: trimtab.input. Run: trimtab topics create"


def watch(*each: str | Exception | None, every_s: float = 3600) -> EnvironmentMonitor:
    """A watch that gets these answers."""
    found = iter([*each])
    last = each[-1]

    def look() -> str | None:
        message = next(found, last)
        if isinstance(message, Exception):
            raise message
        return message

    return EnvironmentMonitor(look, every_s=every_s, again_s=0.001)


def test_what_is_wrong_once_may_be_a_broker_that_is_just_starting():
    with watch(WRONG, WRONG, None) as seen:
        seen.require_now()


def test_what_stays_wrong_is_said_with_the_remedy():
    with watch(WRONG) as seen, pytest.raises(Changed, match="topics create"):
        seen.require_now()


def test_brokers_that_do_not_answer_are_an_outage():
    with watch(Unanswered("no brokers")) as seen, pytest.raises(Unanswered):
        seen.require_now()


def test_a_running_controller_is_told_of_a_change_and_not_of_an_outage_or_a_failed_look():
    with watch(
        None, Unanswered("no brokers"), ValueError("a look that failed"), WRONG, every_s=0.001
    ) as seen:

        def is_told() -> bool:
            try:
                seen.require()
            except Changed:
                return True
            return False

        until(is_told, what="the change", timeout_s=30)
    with watch(Unanswered("no brokers"), every_s=0.001) as seen:
        seen.require()


def test_a_topic_made_anew_is_told_from_the_one_before_and_one_without_an_id_is_not_judged():
    assert describe_exchanged({"input": "a", "control": "b"}, {"input": "a", "control": "b"}) is None
    assert describe_exchanged({}, {"input": "a"}) is None, "a checkpoint from before ids were noted"
    assert describe_exchanged({"input": "a"}, {}) is None, "brokers without ids"
    message = describe_exchanged({"input": "a", "control": "b"}, {"input": "c", "control": "b"})
    assert message is not None
    assert "input had the id a and has c" in message
    assert "control" not in message
    assert "--fresh" in message


STOPPED_BY_JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
\tat org.apache.spark.sql.execution.streaming.StreamExecution.run(StreamExecution.scala:12)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 9 more"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError(STOPPED_BY_JAVA), "a disk is full: No space left on device"),
        (RuntimeError("line one\n\tat a stack"), "RuntimeError: line one"),
    ],
)
def test_the_text_of_an_error_is_told_in_one_line_without_its_stack(error: Exception, line: str):
    assert explain_text(error) == line
