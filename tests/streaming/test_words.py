"""What people read of an error: its words, without numbers that only machines look up."""

import ssl

import pytest
from kafka.errors import TopicAuthorizationFailedError

from streaming.cli.output import value_text
from streaming.process.exits import Refused, raised_as, words_of

DENIED = PermissionError(13, "Permission denied", "/data/x")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DENIED, "Permission denied"),
        (str(DENIED), "Permission denied: '/data/x'"),
        (OSError("the disk returns other bytes"), "the disk returns other bytes"),
        (
            OSError(98, "metrics cannot be served on 127.0.0.1:8000"),
            "metrics cannot be served on 127.0.0.1:8000",
        ),
        (
            ssl.SSLError(1, "[X509: NO_CRL] no certificate or crl found (_ssl.c:4154)"),
            "no certificate or crl found",
        ),
        (TopicAuthorizationFailedError("t"), "TopicAuthorizationFailedError: t"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not text in UTF-8"),
        (TimeoutError(), "TimeoutError"),
        ("KafkaConnectionError: 111 ECONNREFUSED", "KafkaConnectionError: Connection refused"),
        ("org.x.fs.FSError: java.io.IOException: No space left on device", "No space left on device"),
        ("12 EVENTS", "12 EVENTS"),
        ("java.io.IOException: ", "java.io.IOException: "),
        ("Pulsar error: BrokerMetadataError", "Pulsar says: broker metadata error"),
        ("", ""),
    ],
)
def test_an_error_is_said_in_words(error: BaseException | str, words: str):
    assert words_of(error) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1796.035, "1,796"),
        (650_121.17, "650,121"),
        (164.2, "164"),
        (99.96, "100"),
        (54.488, "54.5"),
        (1.0216, "1.02"),
        (0.25, "0.25"),
        (0.0123456, "0.012"),
        (0.00000221, "0"),
        (-0.0001, "0"),
        (-7.0, "-7"),
        (0.0, "0"),
        (12345, "12,345"),
        (True, "True"),
        ("b1", "b1"),
    ],
)
def test_a_number_has_no_more_digits_than_anybody_reads(value: object, text: str):
    assert value_text(value) == text


def test_an_error_that_ends_a_command_is_said_in_words():
    with pytest.raises(Refused, match=r"^Permission denied$"), raised_as(Refused, OSError):
        raise DENIED
