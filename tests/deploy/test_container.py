"""The container's recipe: what it is made from is pinned and there, and what runs is not root."""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy/container/Containerfile"
LOCK = (ROOT / "requirements.lock").read_text()
RUNTIME_LOCK = (ROOT / "deploy/container/runtime.lock").read_text()


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """Every instruction with its argument, comments left out."""
    parser = DockerfileParser(fileobj=CONTAINERFILE.open("r+b"))
    return [
        (step["instruction"], step["value"]) for step in parser.structure if step["instruction"] != "COMMENT"
    ]


def arguments_of(steps: list[tuple[str, str]], instruction: str) -> list[str]:
    return [value for name, value in steps if name == instruction]


def names_in(lock: str) -> set[str]:
    return set(re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE))


def ignored(path: Path) -> bool:
    """Whether a path of the clone stays out of the build, by the allow-list of .containerignore."""
    lines = [
        line for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] not in {"", "#"}
    ]
    assert lines[0] == "*", "everything is left out but what is named"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    return not any(fnmatch(str(path), name) or Path(name) in path.parents for name in allowed)


def copied_from_the_clone(steps: list[tuple[str, str]]) -> Iterator[str]:
    for value in arguments_of(steps, "COPY"):
        words = value.split()
        if not any(word.startswith("--from=") for word in words):
            yield from (word for word in words[:-1] if not word.startswith("--"))


def test_the_base_is_pinned_to_a_patch_release_or_a_digest(steps: list[tuple[str, str]]) -> None:
    preset = dict(value.split("=", 1) for value in arguments_of(steps, "ARG"))
    stages = {value.split()[-1] for value in arguments_of(steps, "FROM") if " AS " in value}
    for value in arguments_of(steps, "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda name: preset[name[1]], value.split()[0])
        assert image in stages or re.search(r":\d+\.\d+\.\d+-|@sha256:[0-9a-f]{64}$", image), image


def test_nothing_is_fetched_past_the_locks(steps: list[tuple[str, str]]) -> None:
    assert arguments_of(steps, "ADD") == []
    message = "\n".join(arguments_of(steps, "RUN"))
    assert not re.search(r"\b(curl|wget|git clone)\b|https?://", message)
    assert "--require-hashes --no-deps -r runtime.lock" in message


def test_what_is_copied_is_in_the_clone_and_reaches_the_builder(steps: list[tuple[str, str]]) -> None:
    sources = list(copied_from_the_clone(steps))
    assert {"policies", "state", "streaming", "deploy/container/runtime.lock"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(Path(source)), source


def test_no_secret_history_or_test_reaches_the_builder() -> None:
    for name in (".git/config", ".venv/bin/python", "tests/streaming/test_readme.py", "trimtab.toml", ".env"):
        assert ignored(Path(name)), name


def test_what_runs_is_not_root_and_says_whether_it_lives(steps: list[tuple[str, str]]) -> None:
    last_stage = steps[max(place for place, (name, _) in enumerate(steps) if name == "FROM") :]
    assert arguments_of(last_stage, "USER") == ["10001:10001"]
    assert "/healthz" in arguments_of(last_stage, "HEALTHCHECK")[0]
    assert arguments_of(last_stage, "ENTRYPOINT") == ['["tini", "--", "entrypoint"]']
    assert arguments_of(last_stage, "CMD") == ['["run"]']


def pins_in(lock: str) -> set[str]:
    return set(re.findall(r"^[A-Za-z0-9][^\n]*==.*(?= \\$)", lock, re.MULTILINE))


def test_the_image_holds_what_the_application_declares_and_no_tool_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {re.split(r"[><=~! \[]", line)[0] for line in project["project"]["dependencies"]}
    kept = names_in(RUNTIME_LOCK)
    assert wanted <= kept
    assert "py4j" in kept, "what these need is there"
    assert not {"pytest", "mypy", "ruff", "hypothesis", "import-linter", "pluggy", "rich", "uv"} & kept


def test_the_image_holds_the_versions_that_are_tested() -> None:
    """`make locks` writes both locks; nothing else may."""
    pins = pins_in(RUNTIME_LOCK)
    assert pins
    assert pins <= pins_in(LOCK)
    assert len(pins) == len(
        re.findall(r"--hash=sha256:[0-9a-f]{64}\s*(?:\n    #|$)", RUNTIME_LOCK, re.MULTILINE)
    ), "each has its hashes"
