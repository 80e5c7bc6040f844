"""Bounds of settings: declared once, in the annotation of a field, as in ``Annotated[float, Ge(0), Le(1)]``.

``check_bounds`` refuses a record that is made with a value outside them. pydantic reads the same annotations and refuses such
a value in a file, variable, option or control event; the reference of the settings shows them. A text among the annotations says
in words what is expected, where the numbers alone do not. Rules for several fields together stand in ``__post_init__``.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, MinLen, Predicate

from policies.wording import digits

Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Ratio = Annotated[float, Ge(0), Le(1)]
"""A share of a whole."""
NotNegativeInt = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
_OFF = "0 or more (0 switches it off)"
OffAtZero = Annotated[float, Ge(0), _OFF]
OffAtZeroInt = Annotated[int, Ge(0), _OFF]


class Bounds(NamedTuple):
    """What the value of one setting has to keep."""

    rules: tuple[object, ...]
    words: str
    """What is expected, such as ``from 0 to 1``."""

    def hold(self, value: Any) -> bool:
        """Whether a value keeps them; an unset one does."""
        if value is None:
            return True
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        return not is_infinite and all(_keeps(value, rule) for rule in self.rules)


def check_bounds(settings: Any) -> None:
    """Refuse a value outside its bounds. Raises ``ValueError`` for the first one."""
    for name, bounds in bounds_of(settings.__class__).items():
        value = getattr(settings, name)
        if not bounds.hold(value):
            raise ValueError(f"{name} is {value!r}; expected {bounds.words}")


@cache
def bounds_of(section: type) -> Mapping[str, Bounds]:
    """The bounds that the fields of a class declare, by name; fields without any are left out."""
    declared = {
        name: _annotations(kind) for name, kind in get_type_hints(section, include_extras=True).items()
    }
    return {
        name: Bounds(tuple(rule for rule in annotations if not isinstance(rule, str)), _words(annotations))
        for name, annotations in declared.items()
        if annotations
    }


def _annotations(kind: Any) -> tuple[Any, ...]:
    """What is annotated to a type, or to the first one of ``… | None``."""
    if get_origin(kind) is Annotated:
        return tuple(
            annotation
            for annotation in kind.__metadata__
            if isinstance(annotation, Ge | Gt | Le | MinLen | Predicate | str)
        )
    return next(filter(None, map(_annotations, get_args(kind) if type(None) in get_args(kind) else ())), ())


def _words(annotations: tuple[Any, ...]) -> str:
    for annotation in annotations:
        if isinstance(annotation, str):
            return annotation
    match annotations:
        case (Ge(ge=least), Le(le=most)):
            return f"from {_said(least)} to {_said(most)}"
        case (Gt(gt=least), Le(le=most)):
            return f"more than {_said(least)} and at most {_said(most)}"
        case (Ge(ge=least),):
            return f"{_said(least)} or more"
        case (Gt(gt=least),):
            return f"more than {_said(least)}"
    raise TypeError(f"{annotations} need a text that says what is expected")


def _said(bound: Any) -> str:
    return digits(bound)


def _keeps(value: Any, rule: object) -> bool:
    match rule:
        case Ge(ge=least):
            return bool(value >= least)
        case Gt(gt=least):
            return bool(value > least)
        case Le(le=most):
            return bool(value <= most)
        case MinLen(min_length=least):
            return len(value) >= least
        case Predicate(func=accepts):
            return bool(accepts(value))
    raise TypeError(f"{rule} is no bound")
