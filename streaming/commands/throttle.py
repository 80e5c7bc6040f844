"""``trimtab throttle``: how fast a reassignment may run and when it is done, before it starts."""

import json
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Literal

import click
import msgspec

from policies.throttle.batches import BatchPlan, CannotBatch, batches_of
from policies.throttle.moves import LARGEST_NUMBER, Reassignment
from policies.throttle.rates import MIB, Caps, RateRule
from streaming.exits import INFEASIBLE, WrongUse
from streaming.throttle_picture import draw
from streaming.throttle_plan import ThrottlePlan, answer_of, make_plan
from streaming.throttle_request import BadRequest, read_request, reassignment_of

STDIN = "-"
_RATE = click.IntRange(1, LARGEST_NUMBER)

_REQUEST = """
\b
{"partitions": [{"topic": "orders", "partition": 0,
                 "current_replicas": [101, 102], "target_replicas": [102, 103],
                 "in_progress_adding_replicas": [103],        if it runs already
                 "leader": 101,
                 "write_bytes_per_s": 4000000,                what producers write; null: unknown
                 "log_size_bytes": 12000000000}]}             null: unknown

or Kafka's own {"version": 1, "partitions": [{"topic", "partition", "replicas"}]} with --bootstrap.

Exit codes: 0 planned, 2 bad input, 3 it would never end (the plan is printed all the same),
            5 the cluster does not answer or does not take it.
"""


def _ratio(_context: click.Context, option: click.Parameter, text: str | None) -> Fraction | None:
    """A decimal number taken exactly: 0.2 is one fifth."""
    if text is None:
        return None
    try:
        found = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{text!r} is no number") from None
    if found < 0 or (found == 0 and option.name == "deadline"):
        raise click.BadParameter(f"{text} is not {'above 0' if option.name == 'deadline' else '0 or more'}")
    return found


def _batch_count(_context: click.Context, _option: click.Parameter, text: str | None) -> str | int | None:
    if text is None or text == "auto":
        return text
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise click.BadParameter(f"{text!r} is neither auto nor a whole number from 1")
    return int(text)


@click.group("throttle")
def throttle_command() -> None:
    """Work out the replication throttle of a reassignment."""


@throttle_command.command("plan", epilog=_REQUEST)
@click.option(
    "--input",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The reassignment in JSON; - is standard input.",
)
@click.option("--rate", type=_RATE, help="This many bytes/s everywhere, instead of a recommended rate.")
@click.option("--deadline", callback=_ratio, metavar="SECONDS", help="Seconds in which it must be done.")
@click.option("--cap", type=_RATE, help="Bytes/s that no broker may exceed.")
@click.option(
    "--headroom",
    callback=_ratio,
    metavar="RATIO",
    default="0.2",
    show_default=True,
    help="A recommended rate is this much above the minimum.",
)
@click.option("--floor", type=_RATE, default=MIB, show_default=True, help="Bytes/s that no rate is below.")
@click.option(
    "--batches",
    callback=_batch_count,
    metavar="N|auto",
    help="Move in so many batches, or in as few as fit under --cap.",
)
@click.option(
    "--format", "form", type=click.Choice(["json", "text"]), default="json", show_default=True, help="Output."
)
def plan_command(
    file: str,
    form: Literal["json", "text"],
    batches: str | int | None,
    rate: int | None,
    deadline: Fraction | None,
    cap: int | None,
    headroom: Fraction,
    floor: int,
) -> None:
    """Say who must be throttled, the least rate that ever ends, the rate to use, and when it is done.

    Two plans: one rate for all brokers (quicker), and each broker its own. Bytes are bytes: 1 MB/s is 1000000.
    """
    try:
        rule = _rule(rate=rate, deadline=deadline, cap=cap, headroom=headroom, floor=floor)
        text = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        reassignment = reassignment_of(read_request(text))
        plan = make_plan(reassignment, rule, batches=_batched(reassignment, rule, batches))
    except BadRequest as error:
        raise WrongUse(str(error)) from error
    _print(plan, form)
    if plan.is_infeasible:
        sys.exit(INFEASIBLE)


def _rule(
    *, rate: int | None, deadline: Fraction | None, cap: int | None, headroom: Fraction, floor: int
) -> RateRule:
    if rate is not None and deadline is not None:
        raise BadRequest("--rate fixes the rate and --deadline asks for one; give one of them")
    if rate is not None and cap is not None and rate > cap:
        raise BadRequest(f"--rate {rate} is above --cap {cap}")
    return RateRule(
        headroom_ratio=headroom,
        floor_bytes_per_s=floor,
        deadline_s=deadline,
        caps=Caps(default_bytes_per_s=cap),
        fixed_bytes_per_s=rate,
    )


def _batched(reassignment: Reassignment, rule: RateRule, asked: str | int | None) -> BatchPlan | None:
    if asked is None:
        return None
    try:
        return batches_of(reassignment.moves, rule, count=None if asked == "auto" else int(asked))
    except CannotBatch as error:
        raise BadRequest(f"--batches {asked}: {error}") from error


def _print(plan: ThrottlePlan, form: str) -> None:
    if form == "text":
        click.echo(draw(plan), nl=False)
    else:
        # json, because bytes of a cluster added up may pass the 64 bits that msgspec writes
        click.echo(json.dumps(msgspec.to_builtins(answer_of(plan)), separators=(",", ":")))
