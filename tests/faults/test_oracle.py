"""The oracle finds what it is there to find: a check that cannot fail could not be trusted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.oracle import Seen, differences, is_complete, wanted_of
from tests.streaming.events import event

ACTIONS = [event("trimtab.action.unload.v1", subject=f"bundle-{n}", data={"round": n}) for n in range(3)]
ROUNDS = [event("trimtab.round.v1", subject="round", time_s=n, data={"round": n}) for n in range(3)]
LETTERS = [
    event("trimtab.rejected.v1", subject="not-json", time_s=n, data={"offset": n}).replace(b'": "', b'":"')
    for n in range(3)
]
WANTED = wanted_of([*ACTIONS, *ROUNDS, *LETTERS])


def seen(actions: list[bytes], rounds: list[bytes], letters: list[bytes]) -> Seen:
    return wanted_of([*actions, *rounds, *letters])


def test_what_is_as_it_should_be_has_no_differences_dead_letters_in_any_order():
    found = seen(ACTIONS, ROUNDS, LETTERS[::-1])
    assert len(found.rejected) == 3
    assert is_complete(found, WANTED)
    assert differences(found, WANTED) == []


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "lost": (lambda values: values[:-1], "1 missing"),
    "twice": (lambda values: [*values, values[0]], "1 seen again"),
    "twice, another lost": (lambda values: [values[0], *values[:-1]], "1 missing"),
    "altered": (lambda values: [values[0].replace(b"0", b"7"), *values[1:]], "1 not in the replay"),
}


@pytest.mark.parametrize("tampering", TAMPERED)
@pytest.mark.parametrize("kind", range(3))
def test_an_output_that_is_lost_repeated_or_altered_is_named(tampering: str, kind: int):
    outputs = [ACTIONS, ROUNDS, LETTERS]
    tamper, message = TAMPERED[tampering]
    outputs[kind] = tamper(outputs[kind])
    assert any(message in difference for difference in differences(seen(*outputs), WANTED))


def test_another_order_is_named():
    assert differences(seen(ACTIONS[::-1], ROUNDS, LETTERS), WANTED) == [
        "actions of east-1: in another order than in the replay"
    ]


def test_an_epoch_that_falls_is_named():
    found = replace(WANTED, epochs={"actions": [1, 1, 2, 1]})
    assert differences(found, WANTED) == ["epochs on actions fall: 2 before 1"]
