"""A start that loses its directory to another start was fenced; without another start it was refused."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.controller.leadership import take_over
from streaming.settings import Settings
from streaming.transport.errors import CheckpointError, Fenced, PublishError


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def started(ensure_owner: Callable[[], None], *, close: Callable[[], None] = lambda: None) -> int:
    """Take over with a checkpoint whose directory cannot be made."""
    publisher: Any = SimpleNamespace(
        check=lambda *_, **__: None,
        open=lambda *_, **__: 7,
        marker=None,
        ensure_owner=ensure_owner,
        close=close,
    )
    checkpoint: Any = SimpleNamespace(begin=raising(CheckpointError("it is changed by somebody else")))
    return take_over(checkpoint, publisher, Settings(), start_with="checkpoint")


def test_who_is_overtaken_while_the_checkpoint_is_copied_was_fenced() -> None:
    with pytest.raises(Fenced):
        started(raising(Fenced("another controller has taken over")))


def test_a_checkpoint_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(CheckpointError, match="somebody else"):
        started(lambda: None)


@pytest.mark.parametrize("asked", [lambda: None, raising(PublishError("no answer"))])
def test_a_take_over_that_is_tried_again_leaves_no_connection_open(asked: Callable[[], None]) -> None:
    closed: list[bool] = []
    with pytest.raises((CheckpointError, PublishError)):
        started(asked, close=lambda: closed.append(True))
    assert closed == [True]
