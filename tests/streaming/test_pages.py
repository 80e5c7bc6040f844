"""What the README and the pages of docs that people write say is what the program does and prints."""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import pytest
from click.testing import CliRunner, Result

from policies.shedding.contract import BUNDLE_OUTCOMES
from policies.shedding.registry import find_policy
from policies.splitting.algorithms import ALGORITHMS
from state.events import RejectReason
from state.layouts import FRESH
from state.settings import PulsarSettings
from streaming.cli import main
from streaming.controller.metrics import KNOWN_LABELS
from streaming.settings import Settings
from streaming.spark.jars import JAVA_VERSION_MIN
from streaming.transport.errors import ADOPT, SKIP_LOST
from tests.live.test_versions import NEWER

ROOT = Path(__file__).parents[2]
PULSAR, DECISIONS, OUTCOMES, LIMITS, SPLITTING, THROTTLING = (
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in (
        "use/pulsar",
        "understand/decisions",
        "understand/outcomes",
        "reference/limits",
        "use/splitting",
        "use/throttling",
    )
)


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def is_part_of(shown: Any, whole: Any) -> bool:
    if isinstance(shown, dict) and isinstance(whole, dict):
        return all(name in whole and is_part_of(value, whole[name]) for name, value in shown.items())
    return bool(shown == whole)


def test_the_decision_in_the_readme_is_part_of_the_first_one_of_the_recording():
    recording = ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz"
    config = str(recording.with_name("pulsar-3-brokers.toml"))
    done = run("replay", "--config", config, "--only", "actions", str(recording))
    shown = re.search(
        r"<!-- decision: .*? -->\n```json\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert is_part_of(json.loads(shown[1]), json.loads(done.stdout.splitlines()[0]))


PAGES = sorted(
    page
    for folder in (ROOT, *(ROOT / name for name in (".github", "deploy", "docs", "tests")))
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
ANCHORED: dict[Path, set[str]] = {}


def prose_of(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's chapters, as GitHub makes them."""
    if page not in ANCHORED:
        found: dict[str, int] = {}
        for title in re.findall(r"(?m)^#+ (.+)$", prose_of(page)):
            plain = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
            found[plain] = found.get(plain, -1) + 1
        ANCHORED[page] = {
            f"{name}-{nth}" if nth else name for name, last in found.items() for nth in range(last + 1)
        }
    return ANCHORED[page]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_anchor_of_a_page_leads_somewhere(page: Path):
    for file, _, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(#?)([^)\s]*)\)", prose_of(page)):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), file
        assert not anchor or anchor in anchors_of(target), f"{file}#{anchor}"


GENERATED = ("settings", "messages", "metrics", "names", "commands", "simulations", "benchmarks")
"""Pages that a program writes, which may be as long as what they list."""


WRITTEN = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem not in GENERATED)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_a_page_that_people_write_is_short_enough_to_be_read(page: Path):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*/*.md")), ids=lambda page: page.stem)
def test_a_page_begins_with_who_reads_it_and_what_they_can_do_afterwards(page: Path):
    first, *_ = re.findall(r"(?m)^(?!#|<!--).+(?:\n.+)*", page.read_text(encoding="utf-8"))
    assert first.startswith("For ")
    assert "fterwards " in first


def test_the_index_of_the_docs_names_every_page_in_a_line_and_is_short():
    index = ROOT / "docs" / "README.md"
    text = index.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", text)}
    pages = set((ROOT / "docs").rglob("*.md")) - {index}
    assert not [page for page in pages if page not in linked and page.parent.name != "runbooks"]


TYPED = r"(?m)^ *(?:\$ )?(?:.*do )?(trimtab [^|;&>#\n]*)"
"""A command of trimtab in a block of code, without what stands before and behind it."""
EVERY_PAGE = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")})


def blocks(page: str) -> str:
    """What stands in blocks of code."""
    return "\n".join(re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```$", page))


def command_of(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """The command that the words behind `trimtab` name, None if one of them names none, and the words that are left."""
    command: click.Command | None = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(click.Context(main), name)
    return command, words


def fault_of(line: str) -> str | None:
    """Why a line is no command of trimtab: a word that names none, or an option that its command does not have."""
    command, words = command_of(re.split(r"\s+", line.strip())[1:])
    if command is None:
        return f"{line}: no such command"
    known = {option for parameter in command.get_params(click.Context(main)) for option in parameter.opts}
    unknown = {word.partition("=")[0] for word in words if re.match(r"-[-a-z]", word)} - known
    return f"{line}: no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.stem)
def test_every_command_on_a_page_is_one_and_has_these_options(page: Path):
    text = page.read_text(encoding="utf-8")
    lines = [*re.findall(TYPED, blocks(text)), *re.findall(r"`(trimtab [a-z][^`…]*)", text)]
    assert [fault for line in lines if (fault := fault_of(line))] == []


COMMANDS = re.findall(TYPED, blocks(PULSAR))


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_on_the_page_about_pulsar_can_be_pasted(line: str):
    command, words = command_of(shlex.split(line)[1:])
    assert command is not None
    assert not isinstance(command, click.Group)
    if "replay" not in line:  # its files need not be there
        command.make_context(command.name, words)


def test_the_page_about_pulsar_shows_every_step():
    steps = "collect topics run config status replay actions execute policy mode record"
    assert {line.split()[1] for line in COMMANDS} == {*steps.split()}


@pytest.mark.parametrize("policy", get_args(get_type_hints(PulsarSettings)["shedding_policy"]))
def test_every_outcome_of_a_policy_is_a_label_from_the_first_scrape(policy: str):
    assert set(find_policy(policy).outcomes) <= set(KNOWN_LABELS.examined_outcomes)


def test_outcomes_of_a_bundle_and_those_of_a_calm_cluster_are_labels_too():
    assert set(KNOWN_LABELS.calm_outcomes) < set(KNOWN_LABELS.examined_outcomes)
    assert set(BUNDLE_OUTCOMES) - {"masked"} <= set(KNOWN_LABELS.candidate_outcomes)


@pytest.mark.parametrize(
    "outcome", sorted({*KNOWN_LABELS.examined_outcomes, *KNOWN_LABELS.candidate_outcomes})
)
def test_every_outcome_is_explained(outcome: str):
    rows = [line.split("|")[1] for line in (DECISIONS + OUTCOMES).splitlines() if line.startswith("| `")]
    assert any(f"`{outcome}`" in row or f"`{outcome} " in row for row in rows)


@pytest.mark.parametrize("placement", get_args(get_type_hints(PulsarSettings)["placement"]))
def test_every_placement_is_explained(placement: str):
    assert f"| `{placement}` |" in DECISIONS


ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in LIMITS.splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]


def value_of(name: str) -> Any:
    """Value of a constant, ``package.module.NAME``, or the default of a setting, ``section.key``."""
    module, _, last = name.rpartition(".")
    if last.isupper():
        return getattr(import_module(module), last)
    found: Any = Settings()
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if row[2]], ids=lambda row: row[0])
def test_a_limit_is_what_the_page_says(row: list[str]):
    value = value_of(row[2].strip("`"))
    if isinstance(value, int | float):
        assert float(re.match(r"\d+(\.\d+)?", row[1])[0]) == value
    else:
        assert value == ("*",)


def test_every_reason_of_a_limit_is_one_that_the_dead_letter_has():
    named = {name for row in ROWS for name in re.findall(r"`([a-z-]+)`", row[3]) if "-" in name}
    assert named <= set(get_args(RejectReason))
    assert {reason for reason in get_args(RejectReason) if reason.startswith("too-")} <= named


def pictures(page: str) -> list[tuple[str, str]]:
    """What a page shows of a plan, by options or algorithm."""
    return re.findall(r"<!-- picture: (.*?) -->\n```text\n(.*?)```", page, re.DOTALL)


def request(page: str) -> str:
    return re.search(r"<!-- request: .*? -->\n```json\n(.*?)```", page, re.DOTALL)[1]


@pytest.mark.parametrize(("algorithm", "shown"), pictures(SPLITTING), ids=lambda each: each[:30])
def test_the_page_about_splits_shows_what_the_command_draws(algorithm: str, shown: str):
    asked = json.dumps({**json.loads(request(SPLITTING)), "algorithm": algorithm})
    result = run("split", "plan", "--input", "-", "--format", "table", given=asked)
    assert (result.exit_code, result.stdout) == (0, shown)


def test_the_page_about_splits_shows_or_explains_every_algorithm():
    assert len(pictures(SPLITTING)) == len(ALGORITHMS) - 1
    assert not [algorithm for algorithm in ALGORITHMS if f"`{algorithm}`" not in SPLITTING]


def throttle_plan(*options: str) -> Result:
    return run("throttle", "plan", "--input", "-", *options, given=request(THROTTLING))


@pytest.mark.parametrize("options", ["as it is", "--rate 19200000", "--cap 22000000 --batches auto"])
def test_the_page_about_throttles_shows_what_the_command_draws(options: str):
    arguments = [] if options == "as it is" else options.split()
    shown = dict(pictures(THROTTLING))
    assert throttle_plan("--format", "table", *arguments).stdout == shown[options]
    assert len(shown) == 3


def test_the_page_about_throttles_explains_every_key_and_its_commands_end_as_it_says():
    table = THROTTLING[THROTTLING.index("## What is printed") :]
    assert not [key for key in json.loads(throttle_plan().stdout) if f"`{key}`" not in table]
    for options, exit_code in (((), 0), (("--rate", "19200000"), 3), (("--rate", "0"), 2)):
        assert throttle_plan(*options).exit_code == exit_code


OPTION = re.compile(r"--(fresh|adopt|skip-lost)")
DEFINED = (
    "state/layouts.py",
    "streaming/transport/errors.py",
    "streaming/cli/services.py",
    "streaming/cli/recordings.py",  # of `replay`, which changes nothing
)
NO_ADVICE = (
    "gave it up",
    "or --adopt wrote it",
    "published before `--adopt`",
    "--skip-lost: %s",
    "(?:fresh|adopt|skip-lost)",
)


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string that is not a docstring."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def test_each_of_the_options_says_what_is_lost_by_it():
    assert re.search("forgets .*averages.*cooldowns.*budgets.*in flight", FRESH)
    assert re.search("forgets .*published again.*act twice", ADOPT)
    assert re.search("without the lost records for good", SKIP_LOST)


def test_no_message_recommends_such_an_option_without_saying_what_is_lost():
    bare = [
        f"{file.relative_to(ROOT)}:{text.lineno}: {text.value}"
        for folder in ("policies", "state", "streaming")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in DEFINED
        for text in texts(ast.parse(file.read_text(encoding="utf-8")))
        if OPTION.search(text.value) and not any(each in text.value for each in NO_ADVICE)
    ]
    assert not bare, "\n".join(["use FRESH, ADOPT or SKIP_LOST:", *bare])


def test_every_version_that_the_readme_calls_tested_has_a_test():
    kafka, pulsar = (
        {
            re.search(rf":{name}:(\d+\.\d+)", lock.read_text())[1]
            for lock in (ROOT / "deploy" / "local" / "locks").glob(f"{system}*.lock")
        }
        for system, name in (("kafka", r"kafka_2\.13"), ("pulsar", "pulsar"))
    )
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (spark,) = (each.partition(">=")[2][:3] for each in package["dependencies"] if each.startswith("pyspark"))
    newer = {
        kind: {each.split()[1] for each in NEWER if each.startswith(kind)} for kind in ("Python", "Java")
    }
    tested = {
        "Pulsar": pulsar,
        "Kafka": kafka,
        "Python": newer["Python"] | {package["requires-python"].removeprefix(">=")},
        "Java": newer["Java"] | {str(JAVA_VERSION_MIN)},
        "Spark": {spark},
    }
    _, _, section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Supported versions")
    said = {
        name: set(versions.split(", "))
        for name, versions in re.findall(r"(?m)^\| (\w+)[^|]* \| ([\d., ]+) \|", section)
    }
    assert said.keys() == tested.keys()
    assert not {name: versions - tested[name] for name, versions in said.items() if versions - tested[name]}
