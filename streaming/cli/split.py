"""``trimtab split``: where a bundle would be cut, and where topics are, for a person with a hot bundle. Changes nothing."""

import click
import msgspec

from policies.splitting.ranges import BadRange, Bundle, partitions_of
from streaming.cli.options import Whole, example, read_input
from streaming.cli.output import format_option, text_of, to_yaml
from streaming.planner.split import (
    BadRequest,
    NotJson,
    draw,
    hash_names,
    make_plan,
    name_warnings,
    read_request,
)
from streaming.process.exits import WrongUse, raised_as

_MOST_PARTITIONS = 1_000_000

_REQUEST = """
\b
{"bundle": "shop/orders/0x00000000_0x40000000",
 "topics": {"persistent://shop/orders/new": {"msgRateIn": 900, "msgThroughputIn": 1e6}, …} or ["persistent://…", …],
 "algorithm": "balanced_flow_divide" (this is the default),
 "max_msg_rate": 30000, "max_bandwidth_mbytes": 100,       the limits of a bundle
 "k": 1, "max_child_ratio": 0.7,                           for balanced_flow_divide
 "difference_threshold_percentage": 10,                    for flow_or_qps_equally_divide
 "positions": [1073741823]}                                for specified_positions_divide
"""


@click.group("split")
def split_command() -> None:
    """Work out where to cut a bundle. Nothing is changed."""


@split_command.command(
    "plan",
    short_help="Say where a bundle should be cut.",
    epilog=_REQUEST + example("trimtab split plan --input bundle.json --format table"),
)
@click.option(
    "--input",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Request in JSON, or one request a line; - is standard input.",
)
@format_option(default="json")
def plan_command(file: str, form: str) -> None:
    """Say where a bundle should be cut, and what each child takes over.

    A file that is one JSON document is one request, and a bad one ends with exit code 2. Otherwise each line is a request and
    gets one answer, in order; a bad one gets {"error": …}. Empty lines are skipped. Without a line of JSON it ends with exit code 2.
    """
    name, text = read_input(file)
    with raised_as(WrongUse, BadRequest, of=name):
        try:
            click.echo(_answer(text, form))
        except NotJson as error:
            _answer_lines(text, form, str(error))


def _answer(text: bytes, form: str) -> str:
    plan = make_plan(read_request(text))
    return draw(plan).rstrip("\n") if form == "table" else _encode(plan.answer(), form)


def _encode(answer: object, form: str) -> str:
    """A line of JSON, or a YAML document."""
    if form == "json":
        return msgspec.json.encode(answer).decode()
    return "---\n" + to_yaml(msgspec.to_builtins(answer)).rstrip()


def _answer_lines(text: bytes, form: str, why: str) -> None:
    """Answer each line. Raises ``BadRequest`` if no line is JSON: it may be one request with a mistake in it."""
    if not text.strip():
        raise BadRequest("it is empty: give a request, or one a line; `trimtab split plan --help` shows one")
    answers, is_any_json = [], False
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            answer, is_json = _answer(line, form) + ("\n" if form == "table" else ""), True
        except BadRequest as error:
            is_json = not isinstance(error, NotJson)
            answer = f"error: {error}\n" if form == "table" else _encode({"error": str(error)}, form)
        is_any_json |= is_json
        answers.append(answer)
    if not is_any_json:
        raise BadRequest(f"no line of it is JSON; read as one request, it is {why}")
    for answer in answers:
        click.echo(answer)


@split_command.command(
    "positions",
    short_help="Print where topics are in the hash range.",
    epilog=example("trimtab split positions --partitions 4 persistent://shop/orders/clicks"),
)
@click.option(
    "--bundle", "name", metavar="BUNDLE", help="Only topics in this bundle: tenant/namespace/0x…_0x…"
)
@click.option(
    "--partitions",
    type=Whole(0, _MOST_PARTITIONS),
    default=0,
    show_default=True,
    help="Number of partitions of each TOPIC; print the partitions.",
)
@format_option()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
def positions_command(name: str | None, partitions: int, form: str, topics: tuple[str, ...]) -> None:
    """Print where topics are in the hash range: the CRC32 of each name, exactly as written.

    The table has a line for each topic: position, position in hexadecimal, name. JSON is Pulsar's answer about topic hash positions.
    """
    with raised_as(WrongUse, BadRange, BadRequest):
        bundle = None if name is None else Bundle.parse(name)
        names = list(dict.fromkeys(part for topic in topics for part in partitions_of(topic, partitions)))
        found = dict(zip(names, hash_names(names).tolist(), strict=True))
    for text in name_warnings(names, bundle):
        click.echo(f"warning: {text}", err=True)
    answer: dict[str, object] = {}
    if bundle is not None:
        answer = {"namespace": bundle.namespace, "bundle": str(bundle.range)}
        outside = {topic: at for topic, at in found.items() if not bundle.range.contains(at)}
        for topic, at in outside.items():
            click.echo(f"warning: outside {bundle.range}: {topic} at 0x{at:08x}", err=True)
        found = {topic: at for topic, at in found.items() if topic not in outside}
    if form == "table":
        lines = [f"{position:>10}  0x{position:08x}  {topic}" for topic, position in found.items()]
        click.echo(text_of(lines), nl=False)
    else:
        click.echo(_encode(answer | {"topicHashPositions": found}, form))
