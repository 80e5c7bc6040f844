"""Bounds of settings: what is refused, and how it is said."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le, MinLen, Predicate

from policies.bounds import Count, NotNegative, OffAtZeroInt, Positive, Ratio, bounds_of, check_bounds


@dataclass(frozen=True, kw_only=True)
class Bounded:
    share: Ratio = 0.5
    length_s: Positive = 1.0
    wait_s: NotNegative = 0.0
    samples: Count = 1
    budget: OffAtZeroInt | None = None
    size: Annotated[str, Predicate(re.compile("[0-9]+g").fullmatch), 'a size such as "1g"'] = "1g"
    name: Annotated[str, MinLen(1), "a name"] = "a"
    port: Annotated[int, Ge(1), Le(65535)] | None = None
    weight: Annotated[float, Ge(0), Le(1e6)] = 1.0
    capacity: Annotated[float, Gt(1e-5)] = 1.0
    free: float = 0.0

    def __post_init__(self) -> None:
        check_bounds(self)


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ({"share": 1.01}, "share is 1.01; expected from 0 to 1"),
        ({"share": float("nan")}, "share is nan; expected from 0 to 1"),
        ({"length_s": 0.0}, "length_s is 0.0; expected more than 0"),
        ({"length_s": float("inf")}, "length_s is inf; expected more than 0"),
        ({"wait_s": -0.1}, "wait_s is -0.1; expected 0 or more"),
        ({"samples": 0}, "samples is 0; expected 1 or more"),
        ({"budget": -1}, "budget is -1; expected 0 or more (0 switches it off)"),
        ({"size": "1t"}, "size is '1t'; expected a size such as \"1g\""),
        ({"name": ""}, "name is ''; expected a name"),
        ({"port": 65536}, "port is 65536; expected from 1 to 65535"),
        ({"weight": -1.0}, "weight is -1.0; expected from 0 to 1,000,000"),
        ({"capacity": 0.0}, "capacity is 0.0; expected more than 0.00001"),
    ],
)
def test_a_value_outside_its_bounds_is_refused_by_name(field: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        Bounded(**field)


def test_limits_themselves_and_what_is_unset_are_taken() -> None:
    Bounded(share=1.0, wait_s=0.0, samples=1, budget=0, port=65535, free=-1.0)
    Bounded(share=0.0, budget=None, port=None)
    assert "free" not in bounds_of(Bounded)


def test_a_bound_that_cannot_be_said_needs_a_text() -> None:
    @dataclass
    class Mute:
        name: Annotated[str, MinLen(1)] = "a"

    with pytest.raises(TypeError, match="need a text"):
        bounds_of(Mute)
