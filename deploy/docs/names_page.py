"""The page of all names that are promises, from the same declarations as the pages that explain them.

One name a line and nothing else, so that a change of the page is a change of a promise.
"""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import click
from prometheus_client import Metric

from deploy.docs.commands_page import codes, walk
from deploy.docs.metrics_page import label_values, labels_of, scraped_name, used_families
from deploy.docs.schemas import KINDS
from policies.shedding.registry import POLICIES
from policies.splitting.plan import TRIGGERS as SPLIT_TRIGGERS
from policies.throttle.pacing_round import Trigger
from state.closing import Outcome, ThrottleReason
from state.events import ActionOutcome, RejectReason
from state.kafka.wording import OUTCOMES as THROTTLE_OUTCOMES
from state.ledger import VerdictOutcome
from state.pulsar.drains import POLICY as DRAIN
from streaming.contract.messages import Envelope
from streaming.controller.metrics import KNOWN_LABELS
from streaming.executor.orders import SkipReason
from streaming.process import exits
from streaming.settings.catalog import FREE_NAME, dotted, env_name, members, sections
from streaming.settings.sections import TopicNames

Json = dict[str, Any]

_HEAD = """\
# Names

<!-- Written by `python -m deploy.docs`; edit the declarations, not this page. -->

For whoever changes trimtab, or builds on it. Afterwards you know every name that 1.x keeps; [compatibility](compatibility.md) says what
that means. `python -m deploy.docs --check` compares this page with the declarations: a change of it is a change of a promise. The
[README of the docs](../README.md) leads to what each name means.
"""


def render_names(schemas: dict[str, Json]) -> str:
    """The page; ``schemas`` by message type."""
    return "".join([_HEAD, *_metrics(), *_messages(schemas), *_settings(), *_commands(), *_values()])


def _group(title: str, names: Iterable[str], *, level: int = 2) -> Iterator[str]:
    yield f"\n{'#' * level} {title}\n\n"
    yield from (f"- {name}\n" for name in names)


def _code(*names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _metrics() -> Iterator[str]:
    families = sorted(used_families().collect(), key=lambda family: family.name)
    yield from _group("Metrics", (_metric(family) for family in families))


def _metric(family: Metric) -> str:
    known = {label: label_values(family, label) for label in labels_of(family.samples)}
    labels = "; ".join(f"`{label}`{f': {_code(*known[label])}' if known[label] else ''}" for label in known)
    return f"`{scraped_name(family)}`{f' by {labels}' if labels else ''}"


def _messages(schemas: dict[str, Json]) -> Iterator[str]:
    topics = members(TopicNames).values()
    yield from _group("Topics", (_code(topic.default) for topic in topics))
    yield from _group("Messages", (_code(kind.type) for kind in KINDS))
    yield from _group(
        "The envelope of every message", map(_code, ("type", *Envelope.__struct_fields__, "data")), level=3
    )
    for kind in KINDS:
        schema = schemas[kind.type]
        fields = _fields(schema["properties"]["data"], "data", schema["$defs"])
        yield from _group(f"`{kind.type}`", fields, level=3)


def _fields(field: Json, path: str, structs: Json) -> Iterator[str]:
    """The fields below one, as dotted paths; `[]` stands for each entry of a list, `*` for each key of a table."""
    for each in field.get("anyOf", [field]):
        if "items" in each:
            yield from _fields(each["items"], f"{path}[]", structs)
        elif isinstance(each.get("additionalProperties"), dict):
            yield from _fields(each["additionalProperties"], f"{path}.*", structs)
        elif "$ref" in each:
            for name, below in structs[each["$ref"].rpartition("/")[2]]["properties"].items():
                yield _code(f"{path}.{name}") + _choices(below)
                yield from _fields(below, f"{path}.{name}", structs)


def _choices(field: Json) -> str:
    values = [value for each in field.get("anyOf", [field]) for value in each.get("enum", [])]
    return f": {_code(*values)}" if values else ""


def _settings() -> Iterator[str]:
    paths = [(*section.path, member.name) for section in sections() for member in section.settings]
    yield from _group("Settings", (_code(dotted(path)) for path in paths))
    variables = (env_name(path) for path in paths if FREE_NAME not in path)
    yield from _group("Environment variables", map(_code, variables))


def _commands() -> Iterator[str]:
    yield from _group("Commands", (line for context in walk() for line in _command(context)))
    constants = {value: name for name, value in vars(exits).items() if name.isupper()}
    yield from _group("Exit codes", (f"{code} {constants[code]}" for code in sorted(codes())))


def _command(context: click.Context) -> Iterator[str]:
    yield _code(context.command_path)
    for parameter in context.command.params:
        is_option = isinstance(parameter, click.Option)
        names = (
            [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.make_metavar(context)]
        )
        choices = parameter.type.choices if is_option and isinstance(parameter.type, click.Choice) else ()
        yield f"{_code(context.command_path)} {_code(*names)}{f': {_code(*choices)}' if choices else ''}"


def _values() -> Iterator[str]:
    """What a field or label says in one word."""
    shedding = (trigger for policy in POLICIES for trigger in policy.triggers if trigger)
    for title, names in {
        "Outcomes of rounds": get_args(Outcome),
        "Outcomes of pairs and brokers": KNOWN_LABELS.examined_outcomes,
        "Outcomes of bundles": KNOWN_LABELS.candidate_outcomes,
        "Outcomes of bundles that could be split": KNOWN_LABELS.split_outcomes,
        "Outcomes of throttles": THROTTLE_OUTCOMES,
        "Reasons why a throttle is held": get_args(ThrottleReason),
        "Results of actions": get_args(ActionOutcome),
        "Verdicts on actions": get_args(VerdictOutcome),
        "Triggers of unloads": dict.fromkeys((*shedding, DRAIN)),
        "Triggers of splits": SPLIT_TRIGGERS,
        "Triggers of throttles": get_args(Trigger),
        "Findings": KNOWN_LABELS.finding_kinds,
        "Reasons why an executor skips an action": get_args(SkipReason),
        "Reasons of the dead letter": get_args(RejectReason),
    }.items():
        yield from _group(title, map(_code, names))
