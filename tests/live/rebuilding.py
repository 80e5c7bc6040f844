"""Controllers with a checkpoint each, and what they publish compared with a replay."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.live.driving import TRIMTAB, Child
from tests.live.stage import Outputs, Stage


def settings(stage: Stage, name: str, **overrides: object) -> Path:
    """A settings file with a checkpoint of its own."""
    own = {"spark__checkpoint": str(stage.directory / f"checkpoint-{name}")} | overrides
    return stage.settings(file=f"{name}.toml", **own)


def controller(
    stage: Stage, stack: ExitStack, name: str, build: Sequence[str] = TRIMTAB, **overrides: object
) -> Child:
    """A running controller with a log of its own."""
    config = settings(stage, name, **overrides)
    run = (*build, "run", "--config", str(config), "--from", "earliest")
    return stack.enter_context(Child(run, stage.directory / f"{name}-{uuid4().hex[:4]}.log"))


def rebuilt(found: Outputs) -> list[dict[str, Any]]:
    """What summaries of the only cluster say of rebuilds."""
    (values,) = found.rounds.values()
    said = [json.loads(value)["data"].get("rebuilt") for value in values]
    return [each for each in said if each is not None]


def assert_same(found: Outputs, wanted: Outputs) -> None:
    """Actions must be equal to the byte, and summaries except for what only a rebuild writes."""
    assert found.actions_count > 0
    assert found.actions == wanted.actions
    assert _without_flag(found.rounds) == _without_flag(wanted.rounds)


def _without_flag(rounds: Mapping[str, Sequence[bytes]]) -> dict[str, list[dict[str, Any]]]:
    """Data of the summaries without the mark of a rebuild; the id is left out, too, because it is a hash of the data."""
    return {
        cluster: [
            {name: told for name, told in json.loads(value)["data"].items() if name != "rebuilt"}
            for value in values
        ]
        for cluster, values in rounds.items()
    }
