"""A split worked out for a person or a program: one request in JSON, one plan, one answer in JSON or as a picture.

Everything about a request that can be wrong is a ``BadRequest`` that names it; a plan is made of valid parts only. Names
of topics are hashed exactly as written. What is odd but possible gives a warning and never changes the plan. It
reads and writes no file.

The picture shows the bundle as a bar, its topics' load above it, the cuts in it, its children below. The bar is true to scale: a
column is a sixty-fourth of the range. Several cuts in one column look like one; the table of children tells them apart.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from policies.columns import Floats, Ints
from policies.splitting.algorithms import SPECIFIED_POSITIONS_DIVIDE as SPECIFIED
from policies.splitting.algorithms import divide
from policies.splitting.balanced_flow_divide import BALANCED_FLOW_DIVIDE as BALANCED
from policies.splitting.cut import (
    MIB,
    PULSAR_MAX_MESSAGES_PER_S,
    BundleLimits,
    ChildLoad,
    Cut,
    SplitQuestion,
    TopicLoads,
    children,
    topic_loads,
)
from policies.splitting.ranges import FULL_UPPER, Bundle, is_full_name, positions_of
from policies.wording import counted
from streaming.contract import diagnose
from streaming.contract.messages import MAX_NUMBER, SHOWN_CHARACTERS, Traffic
from streaming.contract.pulsar import RATES

_SHOWN_TOPICS = 5

_PLACE = re.compile(r"at `\$\.(\w+)")
"""Where in a request msgspec found the mistake, up to the request's own field."""

Position = Annotated[int, Meta(ge=0, le=FULL_UPPER)]


class BadRequest(ValueError):
    """The request cannot be answered; the message names what is wrong and what was expected."""


class NotJson(BadRequest):
    """The text is no JSON at all."""


class TopicEntry(Traffic, frozen=True, gc=False):
    """Load of one topic; other fields of Pulsar's statistics are ignored."""

    position: Position | None = None
    """Position of the topic in the range of hashes; without it, the hash of its name."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where should this bundle be cut?"""

    bundle: str
    """``tenant/namespace/0x00000000_0x40000000``."""
    algorithm: str = BALANCED
    """One of ``ALGORITHMS``."""
    topics: dict[str, TopicEntry | None] | list[str] | None = None
    """Load by topic name, or names alone."""
    positions: list[int] | None = None
    """Boundaries, for ``specified_positions_divide``."""
    max_msg_rate: float = PULSAR_MAX_MESSAGES_PER_S
    """Messages/s a bundle may carry, in and out."""
    max_bandwidth_mbytes: float = 100.0
    """MiB/s a bundle may carry, in and out."""
    difference_threshold_percentage: float = 10.0
    """For ``flow_or_qps_equally_divide``: by how much the total must exceed a limit, in percent; may be 0 or less."""
    flow_or_qps_boundary: Literal["shipped", "proposal"] = "shipped"
    """For ``flow_or_qps_equally_divide``: cut at the middle + 1 as Pulsar does, or at the middle as PIP-169 proposes."""
    k: Annotated[int, Meta(ge=1)] | None = None
    """For ``balanced_flow_divide``: most boundaries; without it, as few as ``max_child_ratio`` needs."""
    max_child_ratio: float = 0.7
    """For ``balanced_flow_divide``: share of the limits below which it brings every child."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Everything that was worked out for a request."""

    bundle: Bundle
    algorithm: str
    question: SplitQuestion
    cut: Cut
    children: tuple[ChildLoad, ...]
    warnings: tuple[str, ...]

    def answer(self) -> dict[str, object]:
        """What is printed: boundaries ascend, and are null for "do not split"; there are children only with boundaries."""
        return {
            "boundaries": self.cut.boundaries or None,
            "reason": self.cut.reason,
            "children": [
                {
                    "range": str(child.range),
                    "topics": child.topics_count,
                    "msg_rate": child.messages_per_s,
                    "throughput_bytes_per_s": child.bytes_per_s,
                }
                for child in self.children
            ],
            "warnings": self.warnings,
        }


_decoder = msgspec.json.Decoder(PlanRequest)


def read_request(text: bytes) -> PlanRequest:
    """The request in ``text``. Raises ``NotJson`` or ``BadRequest``; NaN and Infinity are read here and refused by name later."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_in_two_steps(text)


def _read_in_two_steps(text: bytes) -> PlanRequest:
    """The same for a text that the quick reader refused: that one stops at the first mistake, with half of the text unread."""
    try:
        found = diagnose.load(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"not JSON: {str(error)[:SHOWN_CHARACTERS]}") from error
    try:
        return msgspec.convert(found, PlanRequest)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise _describe(error, found) from error


def _describe(error: Exception, found: object) -> BadRequest:
    text = str(error)
    if "unknown field" in text:
        text += f"; a request has {', '.join(PlanRequest.__struct_fields__)}"
    place = _PLACE.search(text)
    if place is not None and isinstance(found, dict):
        text += f": {_describe_mistake(place[1], found.get(place[1]))}"
    return BadRequest(f"bad request: {text}; `trimtab split plan --help` shows a request")


def _describe_mistake(field: str, value: object) -> str:
    """The field with its value; for topics with statistics, the first topic that is wrong."""
    for name, entry in value.items() if field == "topics" and isinstance(value, dict) else ():
        try:
            msgspec.convert(entry, TopicEntry | None)
        except (msgspec.ValidationError, UnicodeError):
            return f"topic {diagnose.shorten(name)} has {diagnose.shorten(entry)}"
    return f"{field} is {diagnose.shorten(value)}"


def make_plan(request: PlanRequest) -> Plan:
    """Work out the request. Raises ``BadRequest``."""
    try:
        bundle = Bundle.parse(request.bundle)
        limits = BundleLimits(
            messages_per_s=_number(request, "max_msg_rate"),
            bytes_per_s=_number(request, "max_bandwidth_mbytes") * MIB,
        )
        found = _topics(request)
        question = SplitQuestion(
            range=bundle.range,
            topics=found.take_range(bundle.range),
            limits=limits,
            positions=tuple(request.positions or ()),
            difference_threshold_percent=_number(request, "difference_threshold_percentage"),
            boundary=request.flow_or_qps_boundary,
            boundaries_count=request.k,
            max_child_ratio=_number(request, "max_child_ratio"),
        )
        cut = divide(request.algorithm, question)
    except BadRequest:
        raise
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return Plan(
        bundle=bundle,
        algorithm=request.algorithm,
        question=question,
        cut=cut,
        children=children(question, cut.boundaries),
        warnings=tuple(_warnings(request, bundle, found)),
    )


_POSITIVE = frozenset({"max_msg_rate", "max_bandwidth_mbytes", "max_child_ratio"})


def _number(request: PlanRequest, name: str) -> float:
    value: float = getattr(request, name)
    if name in _POSITIVE and not 0 < value <= MAX_NUMBER:
        raise BadRequest(f"{name} is {value}; expected a number above 0")
    if not math.isfinite(value):
        raise BadRequest(f"{name} is {value}; expected a finite number")
    return value


def _topics(request: PlanRequest) -> TopicLoads:
    """All topics of the request in order, those outside the bundle included."""
    given = request.topics if isinstance(request.topics, dict) else dict.fromkeys(request.topics or ())
    names, entries = list(given), list(given.values())
    rates, positions = _rates(names, entries), hash_names(names)
    for row, entry in enumerate(entries):
        if entry is not None and entry.position is not None:
            positions[row] = entry.position
    return topic_loads(
        names,
        positions=positions,
        messages_per_s=rates[:, 0] + rates[:, 1],
        bytes_per_s=rates[:, 2] + rates[:, 3],
    )


def _rates(names: Sequence[str], entries: Sequence[TopicEntry | None]) -> Floats:
    """(n, 4) in the order of ``RATES``; absent ones are 0. Raises ``BadRequest`` for what is no rate."""
    rows = [
        (0.0, 0.0, 0.0, 0.0)
        if entry is None
        else (
            entry.msgRateIn or 0.0,
            entry.msgRateOut or 0.0,
            entry.msgThroughputIn or 0.0,
            entry.msgThroughputOut or 0.0,
        )
        for entry in entries
    ]
    rates = np.array(rows, dtype=np.float64).reshape(len(rows), len(RATES))
    bad = np.argwhere(~((rates >= 0) & (rates <= MAX_NUMBER)))
    if len(bad):
        row, column = bad[0].tolist()
        raise BadRequest(
            f"{RATES[column]} of topic {names[row][:SHOWN_CHARACTERS]!r} is {rates[row, column]}; "
            f"expected a number from 0 to {MAX_NUMBER:g}"
        )
    return rates


def hash_names(names: Sequence[str]) -> Ints:
    """Positions of the names, (n,). Raises ``BadRequest`` for one that UTF-8 cannot write."""
    try:
        return positions_of(names)
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{error.object[:SHOWN_CHARACTERS]!r} is no topic: it is not valid Unicode"
        ) from error


def _warnings(request: PlanRequest, bundle: Bundle, found: TopicLoads) -> Iterator[str]:
    if isinstance(request.topics, dict):
        hashed = [name for name, entry in request.topics.items() if entry is None or entry.position is None]
    else:
        hashed = list(dict.fromkeys(request.topics or ()))
        if len(hashed) < len(request.topics or ()):
            repeats_count = len(request.topics or ()) - len(hashed)
            yield f"{counted(repeats_count, 'topic')} {'is' if repeats_count == 1 else 'are'} given more than once and counted once"
    yield from name_warnings(hashed, bundle)
    inside = bundle.range.contains_each(found.positions)
    outside = [found.names[row] for row in np.flatnonzero(~inside).tolist()]
    if outside:
        yield f"topics outside {bundle.range} are ignored: {_show(outside)}"
    yield from _shared_positions(found.take_range(bundle.range))
    if request.positions and request.algorithm != SPECIFIED:
        yield f"positions are ignored: only {SPECIFIED} uses them"
    if request.k is not None and request.algorithm != BALANCED:
        yield f"k is ignored: only {BALANCED} uses it"


def name_warnings(hashed: Sequence[str], bundle: Bundle | None) -> Iterator[str]:
    """What is odd about names that are hashed as written; ``bundle``: where the topics should be, if it is known."""
    bare = [name for name in hashed if not is_full_name(name)]
    if bare:
        namespace = "tenant/namespace" if bundle is None else bundle.namespace
        yield (
            f"names are hashed as written, but Pulsar hashes full names such as persistent://{namespace}/topic: {_show(bare)}"
        )
    if bundle is not None:
        foreign = [name for name in hashed if is_full_name(name) and not bundle.holds_name(name)]
        if foreign:
            yield f"topics of another namespace than {bundle.namespace}: {_show(foreign)}"


def _shared_positions(topics: TopicLoads) -> Iterator[str]:
    shared = np.flatnonzero(np.diff(topics.positions) == 0)
    if len(shared):
        at = int(topics.positions[shared[0]])
        names = [topics.names[row] for row in np.flatnonzero(topics.positions == at).tolist()]
        more = len(np.unique(topics.positions[shared])) - 1
        others = f"; the same at {more} more positions" if more else ""
        yield f"topics at one position, 0x{at:08x}, cannot be separated: {_show(names)}{others}"


def _show(names: Sequence[str]) -> str:
    text = ", ".join(name[:SHOWN_CHARACTERS] for name in names[:_SHOWN_TOPICS])
    return text if len(names) <= _SHOWN_TOPICS else f"{text} and {len(names) - _SHOWN_TOPICS} more"


_WIDTH = 64
_BAR_WIDTH = 20
_LEVELS = " ▁▂▃▄▅▆▇█"
_IDLE = "·"
"""A column with topics and no load."""


def draw(plan: Plan) -> str:
    """The picture as several lines, each with a line break at its end."""
    lines = [
        f"{plan.bundle}  {plan.algorithm}",
        f"{'' if plan.cut.boundaries else 'not cut: '}{plan.cut.reason}",
        "",
        *bar(plan),
        f"0x{plan.bundle.range.lower:08x}{f'0x{plan.bundle.range.upper:08x}':>{_WIDTH - 8}}",
        *_children(plan),
        *(f"warning: {text}" for text in plan.warnings),
    ]
    return "\n".join([*lines, ""])


def bar(plan: Plan) -> tuple[str, str]:
    """The load of the topics where they are, and below it the bundle with its cuts; 66 columns at most."""
    cells = ["─"] * _WIDTH
    for column in _columns(plan, np.array(plan.cut.boundaries, dtype=np.int64)).tolist():
        cells[column] = "┼"
    return f" {_loads(plan)}".rstrip(), f"├{''.join(cells)}┤"


def _columns(plan: Plan, positions: Ints) -> Ints:
    """Column of each position, (n,)."""
    range_ = plan.bundle.range
    return np.minimum((positions - range_.lower) * _WIDTH // (range_.upper - range_.lower), _WIDTH - 1)


def _loads(plan: Plan) -> str:
    topics, limits = plan.question.topics, plan.question.limits
    load = np.maximum(topics.messages_per_s / limits.messages_per_s, topics.bytes_per_s / limits.bytes_per_s)
    where = _columns(plan, topics.positions)
    loads = np.bincount(where, weights=load, minlength=_WIDTH)
    counts = np.bincount(where, minlength=_WIDTH)
    most = loads.max()
    steps = (
        np.ceil(loads / most * (len(_LEVELS) - 1)).astype(int) if most > 0 else np.zeros(_WIDTH, dtype=int)
    )
    return "".join(
        _LEVELS[step] if step or not count else _IDLE
        for step, count in zip(steps.tolist(), counts.tolist(), strict=True)
    )


def _children(plan: Plan) -> list[str]:
    if not plan.children:
        return []
    limits = plan.question.limits
    ratios = [limits.ratio(child.messages_per_s, child.bytes_per_s) for child in plan.children]
    most = max(ratios) or 1.0
    lines = ["", f"{'child':<22}{'topics':>8}{'messages/s':>14}{'bytes/s':>18}  of the limits"]
    for child, ratio in zip(plan.children, ratios, strict=True):
        numbers = f"{child.topics_count:>8,}{child.messages_per_s:>14,.1f}{child.bytes_per_s:>18,.0f}"
        bar_ = "█" * round(ratio / most * _BAR_WIDTH)
        lines.append(f"{child.range!s:<22}{numbers}  {ratio:>6.2f} {bar_}".rstrip())
    return lines
