"""``trimtab throttle``: how fast copies may run and when they are done, before they start."""

import json
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from policies.throttle.batches import CannotBatch, batches_of, in_no_batch
from policies.throttle.copies import LARGEST_NUMBER
from policies.throttle.needs import MIN_INTERVAL_MS
from policies.throttle.rates import MIB, Caps, RateRule
from streaming.cli.options import Option, example, read_input, read_settings, target_of
from streaming.cli.output import format_option, to_yaml
from streaming.planner.throttle_plan import ThrottlePlan, answer_of, draw, make_plan
from streaming.planner.throttle_request import (
    BadRequest,
    Checked,
    ThrottleRequest,
    checked_request,
    leave_out,
    read_request,
)
from streaming.process.exits import INFEASIBLE, PARTIAL, Refused, WrongUse, raised_as

if TYPE_CHECKING:
    from streaming.settings import KafkaTarget

_REQUEST = """
\b
{"partitions": [{"topic": "orders", "partition": 0,
                 "current_replicas": [101, 102], "target_replicas": [102, 103],
                 "in_progress_adding_replicas": [103],        if it runs already
                 "isr": [101],                                if others fetch what they missed
                 "leader": 101,
                 "write_bytes_per_s": 4000000,                what producers write; null: unknown
                 "log_size_bytes": 12000000000}]}             null: unknown

or Kafka's own {"version": 1, "partitions": [{"topic", "partition", "replicas", "log_dirs"}]} with a cluster to look at.
A directory in log_dirs moves the broker's replica to that disk.

\b
Exit codes: 0 planned (a warning names what is unknown; without a write
              rate it is unknown whether the plan ends)
            2 bad input, or nothing of it can be planned
            3 it would never end, nor would its batches, or it misses
              --deadline (the plan is printed and not applied)
            5 the cluster refuses the request or the throttle
            6 the cluster does not answer
            9 planned or applied in part: what cannot be planned is
              named on standard error and under not_planned, what
              cannot be set on standard error

"""


_EXAMPLE = "such as 19200000 for 19.2 MB/s"


def _rate(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        rate = int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected bytes/s in digits alone, {_EXAMPLE}") from None
    if not 1 <= rate <= LARGEST_NUMBER:
        raise click.BadParameter(f"{rate}: expected {'1 byte/s or more' if rate < 1 else 'less'}")
    return rate


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


def _rate_option(name: str, **attributes: Any) -> Option:
    return click.option(name, type=str, callback=_rate, metavar="BYTES/S", **attributes)


@click.group("throttle")
def throttle_command() -> None:
    """Work out the throttle of a reassignment, of a broker that comes back, or of moves between disks."""


@throttle_command.command(
    "plan",
    short_help="Say how fast a reassignment may run.",
    epilog=_REQUEST
    + example("trimtab throttle plan --input reassignment.json --cluster orders --format table"),
)
@click.option(
    "--input",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The reassignment in JSON; - is standard input. Its log_dirs move replicas between disks.",
)
@click.option(
    "--recovering",
    type=int,
    multiple=True,
    metavar="BROKER",
    help="A broker that is away, or just back, and will fetch what it missed (once or more); without a cluster, its replicas in --input.",
)
@_rate_option("--rate", help="The rate of every broker, in place of a recommended one.")
@click.option(
    "--deadline", callback=_ratio, metavar="SECONDS", help="Seconds in which all of it must be done."
)
@_rate_option("--cap", help="The rate that no broker may exceed.")
@click.option(
    "--headroom",
    callback=_ratio,
    metavar="RATIO",
    default="0.2",
    show_default=True,
    help="A recommended rate is this much above the minimum.",
)
@_rate_option("--floor", default=MIB, show_default=True, help="The lowest rate.")
@click.option(
    "--batches",
    callback=_batch_count,
    metavar="N|auto",
    help="Move in this many batches, or in as few as fit under --cap.",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Read what the input lacks from this cluster, which needs neither TLS nor a user.",
)
@click.option(
    "--cluster",
    metavar="NAME",
    help='The same with the address, TLS and user of [targets."NAME".kafka] in the settings.',
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="With --cluster: settings file; ./trimtab.toml if there is one.",
)
@click.option(
    "--interval",
    type=click.FloatRange(MIN_INTERVAL_MS / 1000),
    default=10.0,
    show_default=True,
    help="With a cluster: seconds over which write rates are measured.",
)
@click.option(
    "--apply",
    "is_applied",
    is_flag=True,
    help="With a cluster: set lists and rates, before you start the move. Not beside the service, which sets its own.",
)
@click.option(
    "--plan",
    "chosen",
    type=click.Choice(["uniform", "per-broker"]),
    help="Which rates --apply sets.  [default: uniform]",
)
@click.option("--replace-rates", is_flag=True, help="--apply replaces rates that are set already.")
@format_option(default="json")
def plan_command(
    file: str | None,
    recovering: tuple[int, ...],
    form: str,
    batches: str | int | None,
    rate: int | None,
    deadline: Fraction | None,
    cap: int | None,
    headroom: Fraction,
    floor: int,
    bootstrap: str | None,
    cluster: str | None,
    config: Path | None,
    interval: float,
    is_applied: bool,  # noqa: FBT001  click passes it by keyword
    chosen: Literal["uniform", "per-broker"] | None,
    replace_rates: bool,  # noqa: FBT001  click passes it by keyword
) -> None:
    """Say which brokers must be throttled, the lowest rate at which copies end, the rate to use, and when they are done.

    There are two plans: one rate for all brokers (quicker), and a rate for each broker. Rates are in bytes/s: 1 MB/s is 1000000.
    """
    if rate is not None and deadline is not None:
        raise WrongUse("--rate fixes the rate and --deadline asks for one; give one of them")
    if rate is not None and cap is not None and rate > cap:
        raise WrongUse(f"--rate {rate} is above --cap {cap}")
    if cap is not None and cap < floor:
        raise WrongUse(
            f"--cap {cap} is below --floor {floor}: no rate is at or above one and at or below the other. "
            f"Both are bytes/s, {_EXAMPLE}"
        )
    rule = RateRule(
        headroom_ratio=headroom,
        floor_bytes_per_s=floor,
        deadline_s=deadline,
        caps=Caps(default_bytes_per_s=cap),
        fixed_bytes_per_s=rate,
    )
    target = _target(bootstrap, cluster, config)
    if file is None and not recovering:
        raise WrongUse("give --input FILE, --recovering BROKER, or both")
    if file is None and target is None:
        raise WrongUse(
            "--recovering needs --bootstrap or --cluster, where what a broker missed is looked up, or --input with its partitions"
        )
    if not is_applied and (chosen or replace_rates):
        raise WrongUse(
            "--plan and --replace-rates say what --apply sets, and there is no --apply: nothing would be set"
        )
    if is_applied and (target is None or batches is not None):
        raise WrongUse(
            "--apply needs --bootstrap or --cluster, and no --batches: apply them one by one, each from its own file"
        )
    if recovering and batches is not None:
        raise WrongUse(
            "--batches needs no --recovering: a broker that is back fetches all that it missed at once"
        )
    make = partial(_make_and_print, rule=rule, batches=batches, form=form)
    given, request = _read_request(file)
    not_set: list[str] = []
    with raised_as(WrongUse, BadRequest):
        if target is None:
            with raised_as(WrongUse, BadRequest, of=given):
                checked = checked_request(request, recovering=recovering)
            plan = make(checked)
        else:
            name, applied = cluster or "--bootstrap", (chosen or "uniform") if is_applied else None
            plan, not_set = _plan_on_cluster(
                request, recovering, make, target, name, interval, applied, replaces=replace_rates
            )
    if plan.is_infeasible or plan.late:
        sys.exit(INFEASIBLE)
    if plan.not_planned or not_set:
        sys.exit(PARTIAL)


def _read_request(file: str | None) -> tuple[str, ThrottleRequest]:
    """The request, and where it is from; an empty one without a file. Raises ``WrongUse``."""
    if file is None:
        return "", ThrottleRequest(partitions=[])
    given, text = read_input(file)
    with raised_as(WrongUse, BadRequest, of=given):
        return given, read_request(text)


def _target(bootstrap: str | None, cluster: str | None, config: Path | None) -> "KafkaTarget | None":
    """The cluster to look at; None if everything is in the file. Raises ``WrongUse``."""
    if bootstrap is not None and cluster is not None:
        raise WrongUse("--bootstrap and --cluster both say where to look; give one of them")
    if cluster is not None:
        return target_of(read_settings(config, {}), cluster, "kafka").kafka
    if config is not None:
        raise WrongUse("--config is read for --cluster only: name the cluster, or leave it out")
    if bootstrap is None:
        return None

    from streaming.settings import KafkaTarget  # noqa: PLC0415  settings, when needed

    try:
        return KafkaTarget(bootstrap=bootstrap)
    except ValueError as error:
        raise WrongUse(f"--bootstrap: {error}") from error


def _plan_on_cluster(
    request: ThrottleRequest,
    recovering: Collection[int],
    make: Callable[[Checked], ThrottlePlan],
    target: "KafkaTarget",
    name: str,
    interval_s: float,
    applied: Literal["uniform", "per-broker"] | None,
    *,
    replaces: bool,
) -> tuple[ThrottlePlan, list[str]]:
    """Look at the cluster, plan, and set what is to be applied; a plan that never ends, or is late, is printed and not set.

    Also returns what could not be set.
    """
    from streaming.kafka.client import ClusterError  # noqa: PLC0415  a broker's client, when needed
    from streaming.kafka.cluster import cluster_of  # noqa: PLC0415
    from streaming.planner.throttle_cluster import (  # noqa: PLC0415
        NotApplied,
        apply_plan,
        recovery_rows,
        survey,
    )

    with raised_as(Refused, ClusterError), cluster_of(target, cluster=name) as kafka:
        given = {row.where for row in request.partitions}
        behind = recovery_rows(kafka, recovering, tell=partial(click.echo, err=True))
        partitions = [*request.partitions, *(row for row in behind if row.where not in given)]
        request = replace(request, partitions=partitions)
        found = survey(kafka, request, recovering=recovering, interval_s=interval_s)
        plan = make(found.checked)
        not_set: list[str] = []
        if applied is not None:
            try:
                done, not_set = apply_plan(kafka, plan, found, chosen=applied, replace_rates=replaces)
            except NotApplied as error:
                if not (plan.is_infeasible or plan.late):
                    raise
                done = [str(error)]
            click.echo("\n".join([*done, *not_set]), err=True)
    return plan, not_set


def _make_and_print(
    checked: Checked, *, rule: RateRule, batches: str | int | None, form: str
) -> ThrottlePlan:
    batched = None
    if batches is not None:
        checked = leave_out(checked, in_no_batch(checked.reassignment.copies))
        count = None if batches == "auto" else int(batches)
        try:
            batched = batches_of(checked.reassignment.copies, rule, count=count)
        except CannotBatch as error:
            raise BadRequest(f"--batches {batches}: {error}") from error
    plan = make_plan(checked, rule, batches=batched)
    for each in plan.not_planned:
        click.echo(f"not planned: {each.partition}: {each.reason}", err=True)
    if form == "table":
        click.echo(draw(plan), nl=False)
    elif form == "yaml":
        click.echo(to_yaml(msgspec.to_builtins(answer_of(plan))), nl=False)
    else:
        # json, because bytes of a cluster added up may pass the 64 bits that msgspec writes
        click.echo(json.dumps(msgspec.to_builtins(answer_of(plan)), separators=(",", ":")))
    return plan
