"""One message of every type as each version of trimtab writes or reads it; today's code has to read them all.

Each folder `golden_messages/vX.Y.Z` belongs to a version. The folder of a released version is never changed. The docs show the
messages of the newest one. While the version in `pyproject.toml` is not released, `python -m tests.streaming.golden` writes
anew what a controller decides on the recordings. Beside each folder's messages, `readings` holds what our readers make of
them, in the code's own terms. The same command writes the readings of every version anew: look at the difference before
you commit them.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from click.testing import CliRunner

from deploy.docs.schemas import KINDS
from state.events import Rejection
from state.outputs.actions import ACTION_PREFIX
from streaming.cli import main as cli
from streaming.cli.actions import read_action
from streaming.cli.published import is_round_of, read_round
from streaming.contract.decode import decode
from streaming.executor.orders import KAFKA_ACTIONS, PULSAR_ACTIONS, read_order
from streaming.transport.side import ActionRecord, PartitionEpochs

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden_messages")
PULSAR = ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz"
KAFKA = ROOT / "tests" / "recordings" / "kafka-4-brokers.ndjson"
SPLITTING = {
    "TRIMTAB_PULSAR__SPLIT__ENABLED": "true",
    "TRIMTAB_PULSAR__SPLIT__MAX_MESSAGES_PER_S": "300",
    "TRIMTAB_PULSAR__SPLIT__HIT_COUNT": "1",
}
"""Limits so low that the heaviest bundle of the recording has to be cut."""
KIND_OF = {kind.type: kind for kind in KINDS}

Event = dict[str, Any]


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
        record = ActionRecord(value=value, epoch_header=b"7")
        yield (
            "executor of pulsar",
            read_order(record, PartitionEpochs(), cluster=cluster, readers=PULSAR_ACTIONS),
        )
        yield (
            "executor of kafka",
            read_order(record, PartitionEpochs(), cluster=cluster, readers=KAFKA_ACTIONS),
        )
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


def replayed(recording: Path, *options: str, **settings: str) -> list[Event]:
    """What ``trimtab replay`` makes of a recording."""
    arguments = ["replay", "--mode", "act", *options, str(recording)]
    done = CliRunner().invoke(cli, arguments, env=settings, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def decided() -> Iterator[Event]:
    """The golden messages that a controller of today decides on recordings; people wrote the others to fit them."""
    config = ("--config", str(PULSAR.with_name("pulsar-3-brokers.toml")))
    events = replayed(PULSAR, *config)
    unload = _first(events, "trimtab.action.unload.v1")
    yield unload
    rounds = (event for event in events if event["type"] == "trimtab.round.v1")
    yield next(event for event in rounds if unload["id"] in event["data"]["actions"])
    yield _first(replayed(PULSAR, *config, **SPLITTING), "trimtab.action.split.v1")
    yield _first(replayed(KAFKA), "trimtab.action.throttle.v1")


def _first(events: list[Event], type_: str) -> Event:
    return next(event for event in events if event["type"] == type_)


def main() -> None:
    """Write what is decided now for the version in ``pyproject.toml``, and all readings."""
    for event in decided():
        _write(GOLDEN / f"v{version()}" / f"{event['type']}.json", event)
    for each in folders():
        for name, event in messages(each).items():
            _write(each / "readings" / f"{name}.json", reading(event))


def _write(path: Path, content: Event) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n")


if __name__ == "__main__":
    main()
