"""The generated docs: schemas accept and refuse what trimtab does, the AsyncAPI resolves, no page is stale."""

import copy
import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, FormatChecker
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.docs import metrics_page
from deploy.docs.__main__ import main, render
from deploy.docs.examples import REPOSITORY, Event
from deploy.docs.schemas import KINDS
from deploy.generated import problems, write
from state.events import Rejection
from state.outputs import RoundSummary
from streaming.cli import main as trimtab
from streaming.contract.decode import decode
from streaming.contract.encode import LEADER_TYPE
from streaming.contract.messages import Envelope
from tests.streaming.commands import leaves
from tests.streaming.golden import KAFKA, PULSAR, folders, messages, replayed

Json = dict[str, Any]
Change = Callable[[Json], object]

LOAD_REPORT = "trimtab.pulsar.load-report.v1"
TOPIC_STATS = "trimtab.pulsar.topic-stats.v1"
CONTROL = "trimtab.control.v1"
RESULT = "trimtab.action-result.v1"
TICK = "trimtab.tick.v1"
ACTIONS = {"trimtab.action.unload.v1", "trimtab.action.split.v1", "trimtab.action.throttle.v1"}

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@dataclass(frozen=True)
class Recorded:
    """Events that a controller reads, and those it makes of them: recordings, and the golden message of every type."""

    inputs: list[Event]
    outputs: list[Event]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    golden = messages(folders()[-1]).values()
    read = {kind.type for kind in KINDS if kind.is_read}
    lines = [*gzip.decompress(PULSAR.read_bytes()).splitlines(), *KAFKA.read_bytes().splitlines()]
    config = str(PULSAR.with_name("pulsar-3-brokers.toml"))
    return Recorded(
        inputs=[*map(json.loads, lines), *(event for event in golden if event["type"] in read)],
        outputs=[
            *replayed(PULSAR, "--config", config),
            *replayed(KAFKA),
            *(event for event in golden if event["type"] not in read),
        ],
    )


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render()


@pytest.fixture(scope="module")
def schemas(pages: dict[str, str]) -> dict[str, Json]:
    return {kind.type: json.loads(pages[f"reference/schemas/{kind.schema_name}"]) for kind in KINDS}


@pytest.fixture(scope="module")
def examples(schemas: dict[str, Json]) -> dict[str, Event]:
    return {name: schema["examples"][0] for name, schema in schemas.items()}


def validator(schema: Json) -> Draft202012Validator:
    return Draft202012Validator(schema, format_checker=FORMATS)


def closed(schema: Any) -> Any:
    """The schema with every struct closed to fields it does not describe."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: value if name == "examples" else closed(value) for name, value in schema.items()}
    return inner | (
        {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else {}
    )


def test_every_schema_is_a_valid_schema_with_a_valid_example(schemas: dict[str, Json]):
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
        for example in schema["examples"]:
            validator(schema).validate(example)


def test_every_field_of_data_says_what_it_means(schemas: dict[str, Json]):
    silent = {
        f"{name}: {struct['title']}.{field}"
        for name, schema in schemas.items()
        for struct in schema["$defs"].values()
        for field, body in struct["properties"].items()
        if not body.get("description")
    }
    assert silent == set()


def test_every_recorded_event_and_output_of_its_replay_validates(
    recorded: Recorded, schemas: dict[str, Json]
):
    events = (*recorded.inputs, *recorded.outputs)
    validators = {name: validator(schema) for name, schema in schemas.items()}
    for event in events:
        validators[event["type"]].validate(event)
    assert {event["type"] for event in events} == set(schemas)


def test_outputs_carry_nothing_that_their_schema_leaves_out(recorded: Recorded, schemas: dict[str, Json]):
    validators = {name: validator(closed(schema)) for name, schema in schemas.items()}
    for event in recorded.outputs:
        validators[event["type"]].validate(event)


LEFT_OUT = {each.name for each in msgspec.structs.fields(RoundSummary) if not each.required}
"""Fields that a summary leaves out when there is nothing to report."""


def test_an_output_that_lost_a_field_does_not_validate(recorded: Recorded, schemas: dict[str, Json]):
    outputs = {event["type"]: event for event in recorded.outputs}
    for name, event in outputs.items():
        for field in event["data"].keys() - LEFT_OUT:
            damaged = event | {"data": {key: value for key, value in event["data"].items() if key != field}}
            assert not validator(schemas[name]).is_valid(damaged), f"{name} without data.{field}"


BAD: list[tuple[str, str, Change]] = [
    ("another version", LOAD_REPORT, lambda event: event.update(specversion="0.3")),
    ("an unknown type", LOAD_REPORT, lambda event: event.update(type="trimtab.pulsar.load-report.v9")),
    ("no cluster", LOAD_REPORT, lambda event: event.pop("cluster")),
    ("a cluster with a slash", LOAD_REPORT, lambda event: event.update(cluster="east/1")),
    ("a cluster that ends its line", LOAD_REPORT, lambda event: event.update(cluster="east\n")),
    ("no subject", LOAD_REPORT, lambda event: event.pop("subject")),
    ("an empty subject", LOAD_REPORT, lambda event: event.update(subject="")),
    ("no time", LOAD_REPORT, lambda event: event.pop("time")),
    ("a time without offset", LOAD_REPORT, lambda event: event.update(time="2026-11-21T13:21:25.206")),
    ("a time in words", TICK, lambda event: event.update(time="noon")),
    ("another content type", TICK, lambda event: event.update(datacontenttype="text/plain")),
    ("no data", LOAD_REPORT, lambda event: event.pop("data")),
    ("NaN as text", LOAD_REPORT, lambda event: event["data"].update(msgRateIn="NaN")),
    ("a negative rate", LOAD_REPORT, lambda event: event["data"].update(msgThroughputOut=-1.0)),
    ("a rate beyond reason", LOAD_REPORT, lambda event: event["data"].update(msgRateIn=2e18)),
    (
        "a negative rate of a bundle",
        LOAD_REPORT,
        lambda event: next(iter(event["data"]["lastStats"].values())).update(msgRateIn=-0.5),
    ),
    ("a negative usage", LOAD_REPORT, lambda event: event["data"]["cpu"].update(usage=-2.0)),
    ("a usage of -1 with a limit", LOAD_REPORT, lambda event: event["data"]["cpu"].update(usage=-1.0)),
    ("a bundle without range", LOAD_REPORT, lambda event: event["data"]["bundles"].append("shop/orders")),
    (
        "statistics of no bundle",
        LOAD_REPORT,
        lambda event: event["data"]["lastStats"].update({"shop/orders/0xg_0xh": {}}),
    ),
    ("topics of no bundle", TOPIC_STATS, lambda event: event["data"].update({"shop/orders": {}})),
    ("an outcome that is none", RESULT, lambda event: event["data"].update(outcome="perhaps")),
    ("a mode that is none", CONTROL, lambda event: event["data"].update(mode="sometimes")),
    ("a pause that is no truth", CONTROL, lambda event: event["data"].update(paused="yes")),
]

GOOD: list[tuple[str, str, Change]] = [
    ("a field Pulsar may add", LOAD_REPORT, lambda event: event["data"].update(newInPulsar5={"a": 1})),
    ("a single field", LOAD_REPORT, lambda event: event.update(data={"msgRateIn": 0.0})),
    ("no measurement", LOAD_REPORT, lambda event: event["data"].update(cpu={"usage": -1.0, "limit": -1.0})),
    ("an empty resource", LOAD_REPORT, lambda event: event["data"].update(cpu={})),
    ("a limit without usage", LOAD_REPORT, lambda event: event["data"]["cpu"].pop("usage")),
    ("a usage of -1 alone", LOAD_REPORT, lambda event: event["data"].update(cpu={"usage": -1.0})),
    ("a usage without limit", LOAD_REPORT, lambda event: event["data"]["cpu"].pop("limit")),
    ("a rate of null", LOAD_REPORT, lambda event: event["data"].update(msgRateIn=None)),
    (
        "a bundle of the old form",
        LOAD_REPORT,
        lambda event: event["data"]["bundles"].append("shop/east/orders/0x00000000_0xffffffff"),
    ),
    ("no content type", TICK, lambda event: event.pop("datacontenttype")),
    ("a tick that asked nobody", TICK, lambda event: event.pop("data")),
    ("the time a log took it", TICK, lambda event: event.update(recordedtime="2026-11-21T13:21:26Z")),
    ("a time with another offset", TICK, lambda event: event.update(time="2026-11-21T15:21:25+02:00")),
    ("an overlay of nothing", CONTROL, lambda event: event.update(data={})),
]


def named(cases: list[tuple[str, str, Change]]) -> Any:
    return pytest.mark.parametrize(
        ("name", "change"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


@named(BAD)
def test_what_the_decoder_refuses_does_not_validate(
    name: str, change: Change, schemas: dict[str, Json], examples: dict[str, Event]
):
    event = copy.deepcopy(examples[name])
    change(event)
    assert isinstance(decode(json.dumps(event).encode())[1], Rejection)
    assert not validator(schemas[name]).is_valid(event)


@named(GOOD)
def test_what_the_decoder_takes_validates(
    name: str, change: Change, schemas: dict[str, Json], examples: dict[str, Event]
):
    event = copy.deepcopy(examples[name])
    change(event)
    assert not isinstance(decode(json.dumps(event).encode())[1], Rejection)
    validator(schemas[name]).validate(event)


def test_every_type_that_the_code_names_has_a_schema():
    sources = [path for layer in ("state", "streaming") for path in (REPOSITORY / layer).rglob("*.py")]
    named_types = {
        found
        for path in sources
        for found in re.findall(r'"(trimtab\.[a-z.-]+\.v\d+)"', path.read_text(encoding="utf-8"))
    }
    assert named_types == {kind.type for kind in KINDS}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(document: Json, pointer: str) -> Any:
    node: Any = document
    for part in pointer.split("/")[1:]:
        node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


def test_every_reference_of_asyncapi_and_of_the_schemas_resolves(pages: dict[str, str]):
    for page, text in pages.items():
        if not page.endswith(".json"):
            continue
        document = json.loads(text)
        for reference in references(document):
            file, _, pointer = reference.partition("#")
            target = str(Path(page).parent / file) if file else page
            assert target in pages, f"{page} refers to {reference}"
            assert resolve(json.loads(pages[target]), pointer)


def test_asyncapi_names_topics_keys_and_the_epoch_of_every_message(pages: dict[str, str]):
    document = json.loads(pages["reference/asyncapi.json"])
    topics = {channel["address"]: set(channel["messages"]) for channel in document["channels"].values()}
    assert topics["trimtab.control"] == {CONTROL}
    assert topics["trimtab.actions.dry-run"] == ACTIONS
    assert topics["trimtab.actions"] == ACTIONS | {LEADER_TYPE}
    assert set().union(*topics.values()) == {kind.type for kind in KINDS}
    for kind in KINDS:
        message = document["components"]["messages"][kind.type]
        assert message["bindings"]["kafka"]["key"]["type"] == "string"
        assert ("trimtab-epoch" in message.get("headers", {}).get("required", ())) is not kind.is_read


def test_the_page_of_messages_shows_types_fields_and_attributes(
    pages: dict[str, str], schemas: dict[str, Json]
):
    page = pages["reference/messages.md"]
    chapters = dict(re.findall(r"^## `?([^`\n]+)`?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(chapters) == {"The envelope", *schemas}
    attributes = set(re.findall(r"^\| `(\w+)` ", chapters["The envelope"], re.MULTILINE))
    assert attributes == {"type", "data", *Envelope.__struct_fields__}
    for name, schema in schemas.items():
        fields = {field for struct in schema["$defs"].values() for field in struct["properties"]}
        assert set(re.findall(r"^\| `(\w+)` ", chapters[name], re.MULTILINE)) == fields
        assert f'"type": "{name}"' in chapters[name]


def test_the_page_of_metrics_names_every_metric_that_is_scraped(pages: dict[str, str]):
    scraped = generate_latest(metrics_page.used_families()).decode()
    names = {family.name for family in text_string_to_metric_families(scraped)}
    names -= {name for name in names if name.endswith("_created")}
    shown = set(
        re.findall(r"^\| `(\w+)` \| (?:counter|gauge|histogram)", pages["reference/metrics.md"], re.MULTILINE)
    )
    assert {name.removesuffix("_total") for name in shown} == names


def test_the_page_of_commands_has_a_chapter_of_every_command(pages: dict[str, str]):
    page = pages["reference/commands.md"]
    for path, command in leaves(trimtab):
        chapter = (
            page[page.index(f"\n### trimtab {' '.join(path)}\n") :].partition("\n##")[2].partition("\n##")[0]
        )
        assert f"Usage: trimtab {' '.join(path)} " in chapter
        for option in command.params:
            assert option.opts[0] in chapter or option.param_type_name == "argument", option.name


def test_the_page_of_names_has_every_name_that_another_page_explains(pages: dict[str, str]):
    names = set(re.findall(r"`([^`]+)`", pages["reference/names.md"]))
    rows = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
    for page in ("metrics", "messages", "settings"):
        explained = set(rows.findall(pages[f"reference/{page}.md"]))
        assert explained
        assert explained <= {last for name in names for last in (name, name.rpartition(".")[2])}, page
    for words, command in leaves(trimtab):
        path = " ".join(("trimtab", *words))
        assert path in names
        for option in command.params:
            assert f"`{path}` `{option.opts[0]}`" in pages["reference/names.md"] or option.opts[0][0] != "-"
    outcomes = set(rows.findall(pages["understand/outcomes.md"]))
    assert {outcome.partition(" ")[0] for outcome in outcomes} <= names


def test_check_names_each_missing_stale_and_surplus_page(pages: dict[str, str], tmp_path: Path):
    write(pages, tmp_path, owned="reference/schemas/*")
    (tmp_path / "reference/messages.md").unlink()
    (tmp_path / "reference/settings.md").write_text("# Settings\n", encoding="utf-8")
    (tmp_path / "reference/schemas" / "trimtab.gone.v1.schema.json").write_text("{}", encoding="utf-8")
    (tmp_path / "written-by-hand.md").write_text("stays\n", encoding="utf-8")

    checked = CliRunner().invoke(main, ["--check", "--to", str(tmp_path)])

    assert checked.exit_code == 1
    named_paths = re.findall(rf"^{re.escape(str(tmp_path))}/(\S+) is (\w+)", checked.stderr, re.MULTILINE)
    assert named_paths == [
        ("reference/messages.md", "missing"),
        ("reference/settings.md", "stale"),
        ("reference/schemas/trimtab.gone.v1.schema.json", "surplus"),
    ]


def test_writing_anew_mends_what_check_found(pages: dict[str, str], tmp_path: Path):
    (tmp_path / "reference/schemas").mkdir(parents=True)
    (tmp_path / "reference/schemas" / "trimtab.gone.v1.schema.json").write_text("{}", encoding="utf-8")

    assert CliRunner().invoke(main, ["--to", str(tmp_path)]).exit_code == 0

    assert problems(pages, tmp_path, owned="reference/schemas/*") == []
    assert CliRunner().invoke(main, ["--check", "--to", str(tmp_path)]).exit_code == 0
