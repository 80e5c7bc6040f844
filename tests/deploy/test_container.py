"""The container's recipe: what it is made from is pinned and there, and what runs is not root."""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from deploy.container.runtime_lock import runtime_part

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy/container/Containerfile"
LOCK = (ROOT / "requirements.lock").read_text()


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
    said = "\n".join(arguments_of(steps, "RUN"))
    assert not re.search(r"\b(curl|wget|git clone)\b|https?://", said)
    assert "--require-hashes --no-deps -r runtime.lock" in said


def test_what_is_copied_is_in_the_clone_and_reaches_the_builder(steps: list[tuple[str, str]]) -> None:
    sources = list(copied_from_the_clone(steps))
    assert {"policies", "state", "streaming", "requirements.lock"} <= set(sources)
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


def test_the_image_holds_what_the_application_declares_and_no_tool_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {re.split(r"[><=~! ]", line)[0] for line in project["project"]["dependencies"]}
    kept = names_in(runtime_part(LOCK))
    assert wanted - names_in(LOCK) == wanted - kept, "what the lock has of it is kept"
    assert {"pyspark", "py4j", "kafka-python"} <= kept
    assert not {"pytest", "mypy", "ruff", "hypothesis", "import-linter", "pluggy"} & kept


def test_an_entry_is_kept_with_its_marker_and_all_of_its_hashes() -> None:
    entry = next(part for part in re.split(r"^(?=\w)", LOCK, flags=re.MULTILINE) if part.startswith("py4j=="))
    assert "--hash=sha256:" in entry
    assert entry in runtime_part(LOCK)


def test_a_package_that_only_a_tool_asks_for_is_left_out_and_one_that_both_ask_for_stays() -> None:
    lock = (
        "a==1 \\\n    --hash=sha256:00\n    # via trimtab (pyproject.toml)\n"
        "b==2\n    # via\n    #   a\n    #   tool\n"
        "c==3\n    # via tool\n"
        "tool==4\n    # via trimtab (pyproject.toml:dev)\n"
    )
    assert names_in(runtime_part(lock)) == {"a", "b"}


def test_a_lock_without_reasons_is_refused() -> None:
    with pytest.raises(ValueError, match="# via"):
        runtime_part("a==1\nb==2\n")
