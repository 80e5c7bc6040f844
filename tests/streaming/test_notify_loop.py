"""The notifier commits its position after everybody was told, and refuses receivers that cannot be told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from streaming.cli import main
from streaming.notifier.loop import NotifierLoop, Source
from streaming.notifier.metrics import NotifierMetrics
from streaming.ports.actions import ActionRecord, Epochs
from streaming.settings.receivers import ReceiverSettings
from tests.streaming.test_notify import (
    FINDING,
    NOW_S,
    Webhook,
    delivery,
    rows,
    serve_webhook,
    summary,
    unload,
)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serve_webhook() as found:
        yield found


@dataclass
class Topic:
    """A topic as the loop sees it."""

    values: list[bytes]
    epochs: list[bytes] = field(default_factory=list)
    """Epoch header of each record; 2 for all if empty."""
    position: int = 0
    committed: int = 0

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        del timeout_s
        epochs = self.epochs or [b"2"] * len(self.values)
        found = list(zip(self.values, epochs, strict=True))[self.position :]
        self.position = len(self.values)
        return [ActionRecord(value=value, epoch_header=epoch) for value, epoch in found]

    def keep_polled(self) -> None:
        pass

    def commit(self) -> None:
        self.committed = self.position

    def drop(self) -> None:
        self.position = self.committed

    def is_at_end(self) -> bool:
        return self.position == len(self.values)


def run(topic: Topic, receivers: dict[str, ReceiverSettings]) -> NotifierMetrics:
    metrics = NotifierMetrics(receivers)
    loop = NotifierLoop(
        {"topic": Source(topic, Epochs())}, receivers, metrics, clock_s=lambda: NOW_S, deliver=delivery
    )
    loop.run(once=True)
    loop.close()
    return metrics


def test_the_position_is_committed_after_everybody_was_told(webhook: Webhook) -> None:
    topic = Topic([unload(), b"junk", summary(findings=rows(FINDING))])
    slow = ReceiverSettings(url="http://127.0.0.1:1/", give_up_after_s=0.05, kinds=("findings",))
    metrics = run(topic, {"ops": ReceiverSettings(url=webhook.url), "down": slow})
    assert topic.committed == 3
    (body,) = webhook.bodies
    assert [each["kind"] for each in body["notices"]] == ["decisions", "findings"]
    text = generate_latest(metrics.registry).decode()
    assert 'trimtab_notifier_messages_total{receiver="ops",result="delivered"} 1.0' in text
    assert 'trimtab_notifier_messages_total{receiver="down",result="given-up"} 1.0' in text
    assert "trimtab_notifier_unreadable_total 1.0" in text


def test_what_a_replaced_controller_says_after_its_successor_is_not_told(webhook: Webhook) -> None:
    topic = Topic(
        [unload(reason="first"), unload(reason="second"), unload(reason="late")], [b"1", b"2", b"1"]
    )
    run(topic, {"ops": ReceiverSettings(url=webhook.url)})
    assert [each["text"] for each in webhook.bodies[0]["notices"]] == ["first", "second"]


def test_without_a_receiver_the_command_says_how_to_name_one(tmp_path: Path) -> None:
    config = tmp_path / "trimtab.toml"
    config.write_text("")
    done = CliRunner().invoke(main, ["notify", "--config", str(config)])
    assert done.exit_code == 2
    assert 'no receiver is configured: add one to the settings file, such as [notify."ops"]' in done.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no address given; set one of url, url_file and url_env"),
        ('url = "http://a/"\nurl_env = "A"', "url and url_env given"),
        ('url = "ftp://a/"', "url is no address"),
        ('url = "http://a/"\nkinds = []', "expected one kind or more"),
        ('url = "http://a/"\ngive_up_after_s = 900.0', "more than 0 and at most 240"),
    ],
)
def test_a_receiver_that_cannot_be_told_is_refused_with_the_remedy(
    tmp_path: Path, text: str, problem: str
) -> None:
    config = tmp_path / "trimtab.toml"
    config.write_text(f'[notify."ops"]\n{text}\n')
    done = CliRunner().invoke(main, ["notify", "--config", str(config)])
    assert done.exit_code == 2
    assert problem in done.output
