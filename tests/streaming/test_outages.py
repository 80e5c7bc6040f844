"""Which errors a start waits out, and which ones it is refused for."""

import errno

import pytest
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from streaming.controller.leadership import outage_of
from streaming.spark.files import UnsafeStore
from streaming.transport.errors import CheckpointError, NotAllowed, PublishError, TopicsWrong, Unreachable


def of_store(cause: Exception | None) -> CheckpointError:
    error = CheckpointError("the checkpoint cannot be read or written")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [KafkaTimeoutError(), PublishError("no answer"), Unreachable("no answer")])
def test_brokers_that_do_not_answer_are_waited_for(error: Exception) -> None:
    assert outage_of(error) == "the brokers"


@pytest.mark.parametrize(
    "cause",
    [OSError(errno.ENOSPC, "No space left on device"), ConnectionRefusedError("namenode"), TimeoutError()],
)
def test_a_full_disk_and_a_store_that_does_not_answer_are_waited_for(cause: Exception) -> None:
    assert outage_of(of_store(cause)) == "the checkpoint's store"


@pytest.mark.parametrize(
    "error",
    [
        of_store(None),
        of_store(PermissionError(errno.EACCES, "Permission denied")),
        of_store(UnsafeStore("its store does not rename a file")),
        NotAllowed("no Write"),
        TopicsWrong("topics missing"),
        TopicAuthorizationFailedError(),
    ],
)
def test_what_a_person_has_to_mend_is_not_waited_for(error: Exception) -> None:
    assert outage_of(error) is None
