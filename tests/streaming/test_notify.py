"""`trimtab notify`: which receiver gets which messages, how often, in which form, and what happens when it does not answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state.outputs import Finding, JudgedRow, RoundSummary, Section, canonical
from streaming.notifier.delivery import Delivery
from streaming.notifier.forms import message
from streaming.notifier.notices import Notice, UnreadableRecord, read
from streaming.notifier.outlet import Outlet
from streaming.settings.receivers import ReceiverSettings
from tests.streaming.summaries import CONTROL, ROUND, section

MINUTE_MS = 60_000
NOW_S = 1_800_000_000.0
"""Seconds since the epoch, a whole number of minutes."""
END = "2027-01-15T08:00:00.000Z"
"""The same time as ``NOW_S``."""


def summary(*, end: str = END, source: str = "/trimtab/trimtab", **fields: object) -> bytes:
    """A round's summary in which only the given ``fields`` are worth a message."""
    calm: dict[str, object] = {
        "candidates": section(),
        "splits": section(),
        "findings": section(),
        "examined": section(),
    }
    data: RoundSummary = msgspec.structs.replace(ROUND, end=end, **{**calm, **fields})
    return event("trimtab.round.v1", canonical(data), subject="round", source=source, time=end)


def event(
    type_: str, data: bytes, *, subject: str, source: str = "/trimtab/trimtab", time: str = END
) -> bytes:
    head = {
        "id": "id-1",
        "source": source,
        "type": type_,
        "subject": subject,
        "time": time,
        "cluster": "east-1",
    }
    return json.dumps(head).encode()[:-1] + b',"data":' + data + b"}"


def unload(*, dry_run: bool = False, reason: str = "b1 is hot") -> bytes:
    data = {"reason": reason, "dry_run": dry_run, "bundle": "t/n/0x0_0x1", "source_broker": "b1"}
    return event("trimtab.action.unload.v1", json.dumps(data).encode(), subject="t/n/0x0_0x1")


def titles(outlet: Outlet, *, now_s: float = NOW_S) -> list[str]:
    return [each.title for each in outlet.take(now_s=now_s)]


def told(value: bytes, **settings: Any) -> list[str]:
    """Titles of the messages that a receiver with these settings gets about one record."""
    outlet = Outlet(ReceiverSettings(url="http://localhost/", **settings))
    outlet.offer(read(value), now_s=NOW_S)
    return titles(outlet)


FINDING = Finding(
    kind="hot-partition", subject="t/n/orders", broker="b1", bytes_per_s=1.0, advice="add partitions"
)
FAILED = JudgedRow(
    id="a1", kind="unload", bundle="t/n/0x0_0x1", outcome="failed", brokers={"source": "b1"}, before={}, expected={}, seen={}
)  # fmt: skip


def rows(row: object) -> Section[Any]:
    return Section(count=1, outcomes={}, heaviest=[row])


@pytest.mark.parametrize(
    ("value", "title"),
    [
        (unload(), "unload t/n/0x0_0x1"),
        (summary(paused=True, control=CONTROL), "paused"),
        (
            summary(failing_since="2027-01-15T07:00:00.000Z"),
            "unloads are held since 2027-01-15T07:00:00.000Z",
        ),
        (summary(outcome="no-quorum"), "too few brokers report"),
        (summary(candidates=section(budget=3, acted=1)), "3 held back: budget"),
        (summary(findings=rows(FINDING)), "hot-partition t/n/orders"),
        (summary(judged=rows(FAILED)), "unload t/n/0x0_0x1 from b1: failed"),
        (summary(outcome="internal-error"), "a round ended in an internal error"),
    ],
)
def test_decisions_holds_findings_and_failures_are_told(value: bytes, title: str) -> None:
    assert told(value) == [title]


def test_what_went_well_and_what_needs_no_person_is_not_told() -> None:
    good = msgspec.structs.replace(FAILED, outcome="good")
    assert told(summary(judged=rows(good), candidates=section(cooldown=5, need_met=3))) == []
    assert told(event("trimtab.input-skipped.v1", b"{}", subject="x")) == []


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"kinds": ("findings",)}, False),
        ({"clusters": ("west-1",)}, False),
        ({"clusters": ("west-1", "east-1"), "kinds": ("decisions",)}, True),
    ],
)
def test_a_receiver_hears_what_it_asked_for(settings: dict[str, Any], *, is_told: bool) -> None:
    assert bool(told(unload(), **settings)) == is_told


def test_a_proposal_is_told_with_the_command_that_approves_it() -> None:
    data = {"reason": "b1 is hot", "dry_run": True, "proposal": True, "bundle": "t/n/0x0_0x1"}
    value = event("trimtab.action.unload.v1", json.dumps(data).encode(), subject="t/n/0x0_0x1")
    assert told(value) == ["unload t/n/0x0_0x1 waits for approval"]
    assert told(value, kinds=("decisions",), dry_run=True) == []
    (notice,) = read(value).notices
    assert "trimtab approve id-1 --why" in notice.text


def test_decisions_of_a_dry_run_are_told_to_who_asked_for_them() -> None:
    assert told(unload(dry_run=True)) == []
    assert told(unload(dry_run=True), dry_run=True) == ["unload t/n/0x0_0x1"]
    (notice,) = read(unload(dry_run=True)).notices
    assert notice.text == "would be decided in act: b1 is hot"


def test_what_lasts_is_told_once_and_again_after_a_while_and_when_it_has_ended() -> None:
    outlet = Outlet(ReceiverSettings(url="http://localhost/", repeat_after_s=120.0))
    heard = []
    for minute in range(5):
        end = f"2027-01-15T08:0{minute}:00.000Z"
        outlet.offer(read(summary(end=end, paused=minute < 4, control=CONTROL)), now_s=NOW_S)
        heard.append(titles(outlet))
    assert heard == [["paused"], [], ["paused"], [], ["ended: paused"]]


def test_what_is_older_than_an_hour_is_no_news() -> None:
    outlet = Outlet(ReceiverSettings(url="http://localhost/"))
    assert outlet.offer(read(unload()), now_s=NOW_S + 3601) == 1
    assert titles(outlet) == []


def test_above_the_limit_notices_are_left_out_and_the_next_message_says_how_many() -> None:
    outlet = Outlet(ReceiverSettings(url="http://localhost/", max_per_hour_count=2))
    sent = []
    for minute in range(4):
        outlet.offer(read(unload()), now_s=NOW_S)
        sent.append(titles(outlet, now_s=NOW_S + minute))
    assert [len(each) for each in sent] == [1, 1, 0, 0]
    outlet.offer(read(unload()), now_s=NOW_S)
    assert titles(outlet, now_s=NOW_S + 3600) == ["unload t/n/0x0_0x1"]
    assert outlet.take_left_out() == 2
    assert outlet.take_left_out() == 0


def test_what_lasts_and_was_left_out_or_not_delivered_is_told_by_a_later_round() -> None:
    outlet = Outlet(ReceiverSettings(url="http://localhost/", max_per_hour_count=1))
    held = read(summary(paused=True, control=CONTROL))
    outlet.offer(read(unload()), now_s=NOW_S)
    assert titles(outlet) == ["unload t/n/0x0_0x1"]
    outlet.offer(held, now_s=NOW_S)
    assert titles(outlet) == []
    assert outlet.take_left_out() == 0, "it is not lost"
    outlet.offer(held, now_s=NOW_S)
    notices = outlet.take(now_s=NOW_S + 3600)
    assert [each.title for each in notices] == ["paused"]
    outlet.defer(notices)
    outlet.offer(held, now_s=NOW_S)
    assert titles(outlet, now_s=NOW_S + 7200) == ["paused"]


def test_all_that_came_at_once_is_one_message() -> None:
    outlet = Outlet(ReceiverSettings(url="http://localhost/", max_per_hour_count=1))
    for _ in range(3):
        outlet.offer(read(unload()), now_s=NOW_S)
    assert len(outlet.take(now_s=NOW_S)) == 3


def test_a_record_that_is_no_event_is_refused() -> None:
    with pytest.raises(UnreadableRecord):
        read(b"not json")


def notice(**fields: Any) -> Notice:
    plain = {
        "kind": "holds",
        "cluster": "east-1",
        "time_ms": round(NOW_S * 1000),
        "title": "a <b> & c",
        "text": "why",
    }
    return Notice(**{**plain, **fields})


def test_slack_gets_one_text_in_which_nothing_is_markup_by_accident() -> None:
    found = message("slack", "ops", [notice(severity="critical")], 3)
    assert found == {
        "text": ":rotating_light: *east-1* a &lt;b&gt; &amp; c\nwhy\n3 earlier notices were left out: max_per_hour_count is reached"
    }


def test_slack_is_told_how_many_it_does_not_see() -> None:
    text = message("slack", "ops", [notice()] * 45, 0)["text"]
    assert text.count("why") == 40
    assert "and 5 more" in text


def test_alertmanager_gets_an_alert_that_fires_while_it_lasts_and_the_same_one_resolved() -> None:
    firing = message("alertmanager", "ops", [notice(key="hold/paused", labels={"reason": "paused"})], 0)
    ended = message("alertmanager", "ops", [notice(key="hold/paused", has_ended=True)], 0)
    assert (firing["version"], firing["status"], ended["status"]) == ("4", "firing", "resolved")
    (alert,), (resolved,) = firing["alerts"], ended["alerts"]
    assert alert["labels"] == {
        "alertname": "trimtab-holds", "cluster": "east-1", "severity": "info", "reason": "paused"
    }  # fmt: skip
    assert alert["startsAt"] == END
    assert alert["endsAt"].startswith("0001-01-01")
    assert alert["fingerprint"] == resolved["fingerprint"]
    assert resolved["endsAt"] == END


def test_what_happens_once_is_an_alert_of_its_own() -> None:
    first, second = message("alertmanager", "ops", [notice(), notice(time_ms=1)], 0)["alerts"]
    assert first["status"] == second["status"] == "resolved"
    assert first["fingerprint"] != second["fingerprint"]


@dataclass
class Webhook:
    """A receiver on this machine that gives the answers of the test, the last one again and again."""

    answers: list[int] = field(default_factory=lambda: [200])
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def next_answer(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serve_webhook() -> Iterator[Webhook]:
    found = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(found.next_answer())
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/hook"
        yield found
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serve_webhook() as found:
        yield found


def delivery(name: str, settings: ReceiverSettings, stop: threading.Event) -> Delivery:
    return Delivery(name, settings, stop, first_wait_s=0.01)


def post(settings: ReceiverSettings) -> tuple[str, str]:
    found = delivery("ops", settings, threading.Event())
    try:
        return found.post({"text": "hello"})
    finally:
        found.close()


def test_a_receiver_that_fails_for_a_while_gets_the_message_in_the_end(webhook: Webhook) -> None:
    webhook.answers = [503, 429, 200]
    assert post(ReceiverSettings(url=webhook.url)) == ("delivered", "")
    assert webhook.bodies == [{"text": "hello"}] * 3


def test_a_receiver_that_refuses_is_asked_once(webhook: Webhook) -> None:
    webhook.answers = [404]
    result, why = post(ReceiverSettings(url=webhook.url))
    assert result == "refused"
    assert "404" in why
    assert len(webhook.bodies) == 1


def test_a_receiver_that_never_answers_is_given_up_and_its_address_is_not_shown() -> None:
    result, why = post(ReceiverSettings(url="http://127.0.0.1:1/secret", give_up_after_s=0.05))
    assert result == "given-up"
    assert "ConnectError" in why
    assert "secret" not in why


def test_an_address_in_a_file_is_read_for_every_message(webhook: Webhook, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{webhook.url}\n")
    assert post(ReceiverSettings(url_file=str(file)))[0] == "delivered"


def test_an_address_that_is_not_there_is_given_up_by_name(tmp_path: Path) -> None:
    result, why = post(ReceiverSettings(url_file=str(tmp_path / "none"), give_up_after_s=0.05))
    assert result == "given-up"
    assert "FileNotFoundError" in why
