"""Commands run against topics that hold these records."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main, published
from streaming.transport.side import TopicRecord
from tests.streaming.records import on_topic

GOLDEN = Path(__file__).with_name("golden_messages") / "v1.0.0"
ACTION = json.loads((GOLDEN / "trimtab.action.unload.v1.json").read_text())
SUMMARY = json.loads((GOLDEN / "trimtab.round.v1.json").read_text())


class Topic:
    """A reader of a topic that holds these values."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_to_end(self) -> Iterator[TopicRecord]:
        for offset, value in enumerate(self._values):
            yield on_topic(value, key=ACTION["cluster"].encode(), offset=offset)


class Records(Topic):
    """A reader of a topic that holds these records."""

    def __init__(self, records: Sequence[TopicRecord]) -> None:
        super().__init__([])
        self._records = records

    def read_to_end(self) -> Iterator[TopicRecord]:
        yield from self._records


def run(monkeypatch: pytest.MonkeyPatch, values: Sequence[bytes], *arguments: str) -> Result:
    side = SimpleNamespace(reader=lambda *_, **__: Topic(values))
    monkeypatch.setattr(published, "output_side", lambda _: side)
    return CliRunner().invoke(main, [*arguments])
