"""One message of every type as each version of trimtab writes or reads it; today's code has to read them all.

Each folder `golden_messages/vX.Y.Z` belongs to a version. The folder of a released version is never changed. While the
version in `pyproject.toml` is not released, `python -m tests.streaming.golden` writes its folder anew. Beside each folder's
messages, `readings` holds what our readers make of them, in the code's own terms. The same command writes the readings of
every version anew: look at the difference before you commit them.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from deploy.docs.kinds import KINDS
from deploy.docs.recorded import replay_recording
from state.events import Rejection
from state.outputs.actions import ACTION_PREFIX
from streaming.contract.decode import decode
from streaming.executor.kafka_orders import read_throttle_order
from streaming.executor.orders import RecordEpoch, read_order
from streaming.operators.action_events import read_action
from streaming.operators.round_events import is_round_of, read_round

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden_messages")
KIND_OF = {kind.type: kind for kind in KINDS}

Event = dict[str, Any]

VOICE = RecordEpoch(7, 7)


def version() -> str:
    """Version of the clone; newer than every released one."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def folders() -> list[Path]:
    """A folder for each version."""
    return sorted(GOLDEN.glob("v*"))


def messages(folder: Path) -> dict[str, Event]:
    """Events of a version by their type."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {event["type"]: event for event in found}


def known_reading(folder: Path, name: str) -> Event:
    """What the readers made of a message when a person last checked it."""
    return dict(json.loads((folder / "readings" / f"{name}.json").read_text()))


def reading(event: Event) -> Event:
    """What each of today's readers makes of a message, as plain values; readers that it is not meant for are left out."""
    value = json.dumps(event).encode()
    read = {name: _plain(found) for name, found in _read(event, value) if found is not None}
    return dict(json.loads(json.dumps(read)))


def _read(event: Event, value: bytes) -> Iterator[tuple[str, object]]:
    cluster = event["cluster"]
    if KIND_OF[event["type"]].is_read:
        key, found, _ = decode(value, key=cluster)
        assert not isinstance(found, Rejection), found
        yield "controller", {"cluster": key, "event": msgspec.structs.asdict(found)}
    elif event["type"].startswith(ACTION_PREFIX):
        yield "commands", read_action(value)
        yield "executor of pulsar", read_order(value, VOICE, cluster=cluster)
        yield "executor of kafka", read_throttle_order(value, VOICE, cluster=cluster)
    elif event["type"] == "trimtab.round.v1":
        assert is_round_of(value, cluster=cluster, number=event["data"]["round"])
        yield "commands", read_round(value)


def _plain(found: object) -> object:
    def hook(value: object) -> object:
        assert isinstance(value, np.ndarray), f"no reading knows how to write {type(value)}"
        return value.tolist()

    return msgspec.to_builtins(found, enc_hook=hook, str_keys=True)


def lost(given: object, read: object, at: str = "") -> Iterator[str]:
    """Paths, at any depth, where a value is missing or different in what was read; added values are fine."""
    match given, read:
        case Mapping(), Mapping():
            for name, value in given.items():
                if name in read:
                    yield from lost(value, read[name], f"{at}.{name}".lstrip("."))
                else:
                    yield f"{at}.{name}".lstrip(".")
        case list(), list() if len(given) == len(read):
            for place, (value, other) in enumerate(zip(given, read, strict=True)):
                yield from lost(value, other, f"{at}[{place}]")
        case str(), datetime():
            yield from () if datetime.fromisoformat(given) == read else (at,)
        case _:
            is_same = given == read and isinstance(given, bool) == isinstance(read, bool)
            yield from () if is_same else (at,)


def main() -> None:
    """Write the messages of the version in ``pyproject.toml``, which are the examples of the docs, and all readings."""
    folder = GOLDEN / f"v{version()}"
    examples = replay_recording(ROOT).examples
    for kind in KINDS:
        _write(folder / f"{kind.type}.json", examples[kind.message])
    for each in folders():
        for name, event in messages(each).items():
            _write(each / "readings" / f"{name}.json", reading(event))


def _write(path: Path, content: Event) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n")


if __name__ == "__main__":
    main()
