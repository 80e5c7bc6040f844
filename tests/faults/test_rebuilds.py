"""What the oracle allows controllers that rebuild, and what it does not."""

import json
from dataclasses import replace
from typing import Any

from tests.faults.oracle import Seen, wanted_of
from tests.faults.rebuilds import differences, is_complete
from tests.live.stage import Outputs
from tests.streaming.events import event


def action(number: int) -> bytes:
    return event("trimtab.action.unload.v1", subject=f"bundle-{number}", data={"round": number})


def id_of(value: bytes) -> str:
    return str(json.loads(value)["id"])


def summary(number: int, **data: Any) -> bytes:
    said = {"round": number, "actions": [id_of(action(number))], **data}
    return event(
        "trimtab.round.v1", subject="round", time_s=number, data=said, id=f"summary-{number}-{[*data]}"
    )


def rebuilt(*unpublished: int) -> dict[str, Any]:
    return {"rebuilt": {"unpublished_rounds": [*unpublished]}}


WANTED = wanted_of([each for number in range(5) for each in (action(number), summary(number))])


def seen(*values: bytes) -> Seen:
    return replace(WANTED, outputs=Outputs.of(values))


def actions(*numbers: int) -> list[bytes]:
    return [action(number) for number in numbers]


def test_a_summary_may_say_that_there_was_a_rebuild() -> None:
    found = seen(*actions(*range(5)), *map(summary, range(3)), summary(3, **rebuilt()), summary(4))
    assert is_complete(found, WANTED)
    assert differences(found, WANTED) == []


def test_anything_else_that_a_summary_says_anew_is_named() -> None:
    found = seen(*actions(*range(5)), *map(summary, range(4)), summary(4, held=7, **rebuilt()))
    assert any("1 not in the replay" in each for each in differences(found, WANTED))


def test_an_action_that_is_lost_is_named_although_no_round_is() -> None:
    found = seen(*actions(0, 1, 2, 4), *map(summary, range(4)), summary(4, **rebuilt()))
    assert not is_complete(found, WANTED)
    assert any("actions of east-1: 1 missing" in each for each in differences(found, WANTED))


def test_from_an_unpublished_round_on_other_decisions_are_allowed() -> None:
    found = seen(*actions(0, 1, 4), *map(summary, range(2)), summary(3, actions=[], **rebuilt(2)), summary(4))
    assert is_complete(found, WANTED)
    assert differences(found, WANTED) == []


def test_a_round_without_a_summary_that_no_summary_names_is_a_difference() -> None:
    found = seen(*actions(0, 1, 4), summary(0), summary(1), summary(4, **rebuilt(2)))
    assert differences(found, WANTED) == [
        "summaries of east-1: rounds [3] have none, and no summary says why"
    ]


def test_after_an_unpublished_round_an_action_comes_once_and_as_its_summary_names_it() -> None:
    rounds = [*map(summary, range(2)), summary(3, **rebuilt(2)), summary(4)]
    twice = "\n".join(differences(seen(*actions(0, 1, 3, 4, 4), *rounds), WANTED))
    assert "one came twice" in twice
    unnamed = "\n".join(differences(seen(*actions(0, 1, 3), *rounds), WANTED))
    assert "not those that the summaries name" in unnamed


def test_it_is_not_complete_before_the_last_round_is_out_or_named() -> None:
    begun = [*actions(0, 1, 3), *map(summary, range(2)), summary(3, **rebuilt(2))]
    assert not is_complete(seen(*begun), WANTED)
    assert is_complete(seen(*begun, action(4), summary(4)), WANTED)
