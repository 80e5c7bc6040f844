"""The log: one JSON object per line if the settings say so, with what the line is about as fields."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.controller.published import OutputLog, RefusalLog, decode
from streaming.process.exits import Refused
from streaming.process.logs import LimitedHandler, RateLimit, formatter, log_to_stderr
from tests.streaming.golden import folders, messages

UNLOAD = messages(folders()[-1])["trimtab.action.unload.v1"]
SUMMARY = messages(folders()[-1])["trimtab.round.v1"]


def logged(caplog: pytest.LogCaptureFixture, event: dict[str, object]) -> list[logging.LogRecord]:
    caplog.clear()
    OutputLog().log(decode(json.dumps(event).encode()), now_s=0.0)
    return list(caplog.records)


def test_a_published_action_is_a_line_with_cluster_round_and_id(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    (record,) = logged(caplog, UNLOAD)
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
    dry_run = UNLOAD | {"data": UNLOAD["data"] | {"dry_run": True}}
    assert "(dry-run)" in logged(caplog, dry_run)[0].getMessage()
    proposal = UNLOAD | {"data": dry_run["data"] | {"proposal": True}}
    assert "(a proposal: it waits for `trimtab approve`)" in logged(caplog, proposal)[0].getMessage()


def test_rounds_are_for_whoever_asks_for_more(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    assert logged(caplog, SUMMARY) == []
    caplog.set_level(logging.DEBUG)
    (record,) = logged(caplog, SUMMARY)
    line = json.loads(formatter("json").format(record))
    assert (line["cluster"], line["round"]) == ("lab", SUMMARY["data"]["round"])
    assert "action_id" not in line


def test_a_change_of_what_is_in_force_is_a_line_with_who_and_why(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    log = OutputLog()
    control = {"id": "c", "time": "t", "who": "ann", "why": "the sale", "arrived_late": False}
    control |= {"resumed_at": None, "problem": None}
    rounds: list[dict[str, Any]] = [
        {"mode": "act", "paused": False, "settings": {"guards": {"bundle_cooldown_s": 9}}, "control": None},
        {"paused": True, "control": control},
        {},
        {"mode": "dry-run", "policy": "other"},
        {"paused": False, "settings": {"guards": {"max_unloads_per_round_count": 7}}},
    ]
    data = dict(SUMMARY["data"])
    for changed in rounds:
        data |= changed
        log.log(decode(json.dumps(SUMMARY | {"data": data}).encode()), now_s=0.0)
    first = f"lab, round {data['round']}: in force from now on: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{first}paused. Last change by ann: the sale",
        f"{first}mode dry-run, was act, policy other, was {SUMMARY['data']['policy']}. Last change by ann: the sale",
        (
            f"{first}no pause, pulsar.guards.bundle_cooldown_s = 1800 (the default), was 9, "
            "pulsar.guards.max_unloads_per_round_count = 7, was 20, or more for the fleet planner (the default). Last change by ann: the sale"
        ),
    ]
    caplog.clear()
    log.forget("lab")
    log.log(decode(json.dumps(SUMMARY | {"data": data | {"control": None}}).encode()), now_s=0.0)
    assert caplog.records == [], "nothing is known of before"


def test_what_was_long_in_force_is_said_once_after_a_start_and_not_as_news(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    log, end_s = OutputLog(), decode(json.dumps(SUMMARY).encode()).time_s
    control = {"id": "c", "time": "t", "who": "ann", "why": "the sale", "arrived_late": False}
    control |= {
        "resumed_at": None,
        "problem": None,
        "settings": {"pulsar": {"guards": {"bundle_cooldown_s": 9}}},
    }
    rounds: list[tuple[dict[str, Any], float]] = [
        ({"mode": "dry-run", "paused": False, "control": None}, end_s + 3600),
        ({"mode": "act", "paused": True, "control": control}, end_s + 3600),
        ({"mode": "act", "paused": True, "control": control}, end_s + 1),
        ({"mode": "act", "paused": True, "control": control}, end_s + 1),
    ]
    for changed, now_s in rounds:
        data = SUMMARY["data"] | changed
        log.log(decode(json.dumps(SUMMARY | {"data": data}).encode()), now_s)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"lab, round {SUMMARY['data']['round']}: in force: mode act, paused, "
        "pulsar.guards.bundle_cooldown_s = 9. Last change by ann: the sale"
    )


def test_an_exception_stays_one_line_of_json():
    try:
        int("two\nlines")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    text = formatter("json").format(record)
    assert "\n" not in text
    assert "ValueError: invalid literal" in json.loads(text)["exc_info"]


def warning(text: str, name: str = "kafka.net", level: int = logging.WARNING) -> logging.LogRecord:
    record = logging.LogRecord(name, level, __file__, 1, text, (), None)
    record.created = 7_200.0
    return record


def test_of_warnings_that_differ_in_numbers_the_first_is_told_and_the_rest_counted_once_a_minute():
    limit = RateLimit()
    shown = [limit.admits(warning(f"node {n} does not answer"), n / 10) for n in range(100)]
    assert shown == [True] + [False] * 99
    assert limit.admits(warning("something else"), 10)
    assert limit.admits(warning("node 7 does not answer", name="other"), 10)
    assert limit.repeated(59) == []
    (count,) = limit.repeated(60)
    last = time.strftime("%H:%M:%S", time.localtime(7_200))
    assert (
        count.getMessage() == f"the same 99 times more in 60 s, the last at {last}: node 99 does not answer"
    ), "numbers of now, not of then"
    assert (count.name, count.levelno) == ("kafka.net", logging.WARNING)
    assert not limit.admits(warning("node 7 does not answer"), 61), "it lasts: a line a minute is enough"
    assert [each.getMessage() for each in limit.repeated(120)] == [
        f"the same 1 time more in 60 s, the last at {last}: node 7 does not answer"
    ]
    assert limit.repeated(180) == []
    assert limit.admits(warning("node 7 does not answer"), 181), "it was over, and begins anew"


def test_a_line_of_ours_is_another_where_another_broker_or_cluster_is_meant():
    limit, ours = RateLimit(), "streaming.x"
    lines = (
        "b-1:9092 is down; again in 1 s",
        "b-1:9092 is down; again in 16 s",
        "b-2:9092 is down; again in 1 s",
    )
    assert [limit.admits(warning(line, name=ours), 0) for line in lines] == [True, False, True]


def test_what_somebody_asked_to_see_is_never_left_out():
    limit = RateLimit()
    assert all(limit.admits(warning("published", level=logging.INFO), 0) for _ in range(1000))
    assert limit.repeated(100) == []


@pytest.fixture
def process_log() -> Iterator[None]:
    """The log of the process and its hook are afterwards as they were."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook
    yield
    root.handlers[:], root.level, sys.excepthook = before


@pytest.mark.usefixtures("process_log")
def test_no_library_is_silenced_and_their_warnings_reach_the_log(capsys: pytest.CaptureFixture[str]):
    log_to_stderr("json", verbose=False)
    for name in ("kafka", "py4j", "httpx", "httpcore", "org.apache.spark"):
        logging.getLogger(name).warning("%s does not feel well", name)
        logging.getLogger(name).info("a request")
    message = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    warnings = [line for line in message if line["level"] == "WARNING"]
    assert [line["logger"] for line in warnings] == ["kafka", "py4j", "httpx", "httpcore", "org.apache.spark"]


@pytest.mark.usefixtures("process_log")
@pytest.mark.parametrize("verbose", [False, True])
def test_an_error_of_a_library_is_a_line_with_class_and_message_and_its_stack_is_for_debug(
    capsys: pytest.CaptureFixture[str], *, verbose: bool
):
    log_to_stderr("console", verbose=verbose)
    try:
        int("x")
    except ValueError:
        logging.getLogger("py4j").exception("it failed")
    (line, *stack) = capsys.readouterr().err.splitlines()
    assert "it failed" in line
    assert ("Traceback" in "".join(stack)) is verbose
    assert "ValueError" in line + "".join(stack)


def test_a_line_whose_arguments_do_not_fit_ends_nobody(capsys: pytest.CaptureFixture[str]):
    LimitedHandler().handle(logging.LogRecord("x", logging.ERROR, __file__, 1, "%d of %d", ("one",), None))
    assert "Logging error" in capsys.readouterr().err


def refused(cluster: str, reason: str, *, offset: int = 7) -> bytes:
    data = {"reason": reason, "detail": "it is no JSON", "topic": "in", "partition": 0, "offset": offset}
    return json.dumps(
        {"id": "r", "source": "/trimtab/t", "type": "trimtab.rejected.v1", "cluster": cluster, "data": data}
    ).encode()


def test_refused_records_are_a_line_a_minute_for_each_cluster_and_reason(caplog: pytest.LogCaptureFixture):
    log = RefusalLog()
    log.log([refused("east", "not-json"), refused("east", "not-json", offset=8), refused("", "bad-time")], 0)
    log.log([refused("east", "not-json"), refused("west", "not-json")], 59.9)
    log.log([refused("east", "not-json", offset=9)], 60.0)
    assert [record.getMessage() for record in caplog.records] == [
        "east: 2 records refused as not-json, such as in/0@7: it is no JSON (`trimtab rejected tail --from earliest --no-follow` shows all)",
        "1 record without a valid cluster refused as bad-time, such as in/0@7: it is no JSON (`trimtab rejected tail --from earliest --no-follow` shows all)",
        "west: 1 record refused as not-json, such as in/0@7: it is no JSON (`trimtab rejected tail --from earliest --no-follow` shows all)",
        "east: 2 records refused as not-json since the last such line, such as in/0@9: it is no JSON (`trimtab rejected tail --from earliest --no-follow` shows all)",
    ]


@pytest.mark.usefixtures("process_log")
@pytest.mark.parametrize(("form", "is_object"), [("json", True), ("console", False)])
def test_what_ends_a_program_is_an_object_where_the_log_is_made_of_objects(
    capsys: pytest.CaptureFixture[str], form: Any, *, is_object: bool
):
    log_to_stderr(form, verbose=False)
    Refused("there is no topic").show()
    sys.excepthook(ValueError, ValueError("oh"), None)
    first, *rest = capsys.readouterr().err.splitlines()
    if is_object:
        assert json.loads(first)["message"] == "there is no topic"
        assert json.loads(first)["exit_code"] == 5
        assert "ValueError: oh" in json.loads(rest[0])["exc_info"]
    else:
        assert first == "Error: there is no topic"
        assert rest[-1] == "ValueError: oh"
