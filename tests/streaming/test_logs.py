"""The log: an object a line where that is asked for, with what a line is about as fields."""

import json
import logging
import sys

import pytest

from streaming.logs import formatter
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, ROUND
from streaming.spark.said import log_output
from tests.streaming.golden import folders, messages

UNLOAD = messages(folders()[-1])["trimtab.action.unload.v1"]
SUMMARY = messages(folders()[-1])["trimtab.round.v1"]


def logged(caplog: pytest.LogCaptureFixture, kind: str, event: dict[str, object]) -> list[logging.LogRecord]:
    caplog.clear()
    log_output(kind, json.dumps(event).encode())
    return list(caplog.records)


def test_a_published_action_is_a_line_with_cluster_round_and_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (record,) = logged(caplog, ACTION, UNLOAD)
    line = json.loads(formatter("json").format(record))
    assert line["cluster"] == "lab"
    assert line["round"] == UNLOAD["data"]["round"]
    assert line["action_id"] == UNLOAD["id"]
    assert line["level"] == "INFO"
    assert line["logger"] == "trimtab.published"
    assert UNLOAD["data"]["reason"] in line["message"]
    assert line["time"].endswith("+00:00")
    text = formatter("console").format(record)
    assert UNLOAD["id"] in text
    assert "lab, round" in text
    assert "\n" not in text
    assert "(dry-run)" in logged(caplog, DRY_RUN_ACTION, UNLOAD)[0].getMessage()


def test_rounds_are_for_whoever_asks_for_more_and_observations_for_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert logged(caplog, ROUND, SUMMARY) == []
    caplog.set_level(logging.DEBUG)
    assert logged(caplog, OBSERVED, {}) == []
    (record,) = logged(caplog, ROUND, SUMMARY)
    line = json.loads(formatter("json").format(record))
    assert (line["cluster"], line["round"]) == ("lab", SUMMARY["data"]["round"])
    assert "action_id" not in line


def test_an_exception_stays_one_line_of_json() -> None:
    try:
        int("two\nlines")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    text = formatter("json").format(record)
    assert "\n" not in text
    assert "ValueError: invalid literal" in json.loads(text)["exc_info"]
