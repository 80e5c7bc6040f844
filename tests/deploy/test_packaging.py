"""The package, the container's recipe, the compose file and the units for systemd: what they name is pinned and there, and what they run may do little."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from click.testing import CliRunner
from dockerfile_parse import DockerfileParser

from streaming.cli import main
from streaming.process import exits
from streaming.process.exits import FENCED, FINAL, REFUSED, UNREACHABLE, WRONG_USE
from tests.support.programs import GoProgram

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


def test_the_base_is_pinned_to_a_patch_release_or_a_digest(steps: list[tuple[str, str]]):
    preset = dict(value.split("=", 1) for value in arguments_of(steps, "ARG"))
    stages = {value.split()[-1] for value in arguments_of(steps, "FROM") if " AS " in value}
    for value in arguments_of(steps, "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda name: preset[name[1]], value.split()[0])
        assert image in stages or re.search(r":\d+\.\d+\.\d+-|@sha256:[0-9a-f]{64}$", image), image


def test_nothing_is_fetched_past_the_locks(steps: list[tuple[str, str]]):
    assert arguments_of(steps, "ADD") == []
    message = "\n".join(arguments_of(steps, "RUN"))
    assert not re.search(r"\b(curl|wget|git clone)\b|https?://", message)
    assert "--require-hashes --no-deps -r runtime.lock" in message


def test_what_is_copied_is_in_the_clone_and_reaches_the_builder(steps: list[tuple[str, str]]):
    sources = list(copied_from_the_clone(steps))
    assert {"policies", "state", "streaming", "deploy/container/runtime.lock"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(Path(source)), source


def test_no_secret_history_or_test_reaches_the_builder():
    for name in (".git/config", ".venv/bin/python", "tests/streaming/test_pages.py", "trimtab.toml", ".env"):
        assert ignored(Path(name)), name


def test_what_runs_is_not_root_and_says_whether_it_lives(steps: list[tuple[str, str]]):
    last_stage = steps[max(place for place, (name, _) in enumerate(steps) if name == "FROM") :]
    assert arguments_of(last_stage, "USER") == ["10001:10001"]
    assert "/healthz" in arguments_of(last_stage, "HEALTHCHECK")[0]
    assert arguments_of(last_stage, "ENTRYPOINT") == ['["tini", "--", "entrypoint"]']
    assert arguments_of(last_stage, "CMD") == ['["run"]']


def pins_in(lock: str) -> set[str]:
    return set(re.findall(r"^[A-Za-z0-9][^\n]*==.*(?= \\$)", lock, re.MULTILINE))


def test_the_image_holds_what_the_application_declares_and_no_tool_of_developers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {re.split(r"[><=~! \[]", line)[0] for line in project["project"]["dependencies"]}
    kept = names_in(RUNTIME_LOCK)
    assert wanted <= kept
    assert "py4j" in kept, "what these need is there"
    assert not {"pytest", "mypy", "ruff", "hypothesis", "import-linter", "pluggy", "uv"} & kept


def test_the_image_holds_the_versions_that_are_tested():
    """`make locks` writes both locks; nothing else may."""
    pins = pins_in(RUNTIME_LOCK)
    assert pins
    assert pins <= pins_in(LOCK)
    assert len(pins) == len(
        re.findall(r"--hash=sha256:[0-9a-f]{64}\s*(?:\n    #|$)", RUNTIME_LOCK, re.MULTILINE)
    ), "each has its hashes"


DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILE = DEPLOY / "compose.yaml"
LOADER = GoProgram(
    "compose-spec",
    "github.com/compose-spec/compose-go/v2/cmd",
    "v2.9.0",
    "the compose file is NOT held against the specification",
)


def services() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(FILE.read_text())["services"])


@pytest.mark.parametrize("name", services())
def test_a_service_mounts_the_clone_read_only_or_a_declared_volume(name: str):
    declared = yaml.safe_load(FILE.read_text())["volumes"]
    for mount in services()[name]["volumes"]:
        source, target, *mode = mount.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert any((DEPLOY / source).iterdir()), source
            assert mode == ["ro"], mount
        else:
            assert source in declared, source


@pytest.mark.parametrize("name", services())
def test_images_are_pinned_and_nothing_listens_beyond_this_machine(name: str):
    service = services()[name]
    assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), service["image"]
    assert service["network_mode"] == "host"
    text = json.dumps([service.get("command", []), service.get("environment", {})])
    assert "127.0.0.1" in text
    assert "0.0.0.0" not in text  # noqa: S104  the point


def test_files_that_settings_of_a_service_name_are_inside_its_mounts():
    for name, service in services().items():
        mounts = dict(mount.split(":")[:2][::-1] for mount in service["volumes"])
        named = re.findall(
            r"(/etc/[\w./-]+)", json.dumps([service.get("command"), service.get("environment")])
        )
        assert named, name
        for path in named:
            target = next(target for target in mounts if path.startswith(f"{target}/"))
            assert (DEPLOY / mounts[target] / path.removeprefix(f"{target}/")).is_file(), path


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_composes_own_loader_takes_the_file_and_sees_every_mount():
    done = LOADER.run("-format", "json", FILE, cwd=DEPLOY)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert loaded["services"].keys() == services().keys()
    for service in loaded["services"].values():
        for mount in service["volumes"]:
            assert mount["type"] == "volume" or Path(mount["source"]).is_dir(), mount


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_composes_own_loader_refuses_what_is_not_in_the_specification(tmp_path: Path):
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("network_mode:", "network_mood:"))
    done = LOADER.run(wrong, cwd=tmp_path)
    assert done.returncode != 0
    assert "network_mood" in done.stderr


def test_the_page_of_the_demos_leads_from_a_demo_to_the_dashboards_in_two_commands():
    page = (DEPLOY.parent / "docs" / "start" / "demo.md").read_text()
    block = next(each for each in page.split("```")[1::2] if "docker compose" in each)
    commands = [line.partition("#")[0].split() for line in block.strip().splitlines()]
    up, look = commands
    assert up[:2] == ["docker", "compose"]
    assert DEPLOY.parent / up[up.index("-f") + 1] == FILE
    address = services()["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"]
    assert look == ["open", f"http://{address}:3000"], "Grafana's own port"


UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def read(unit: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_there_is_a_unit_of_each_program():
    assert [unit.name for unit in UNITS] == [
        "trimtab-collect@.service",
        "trimtab-execute@.service",
        "trimtab.service",
    ]


@each_unit
def test_what_a_unit_starts_is_a_command_with_its_options(unit: Path):
    line = read(unit)["Service"]["ExecStart"].replace("${SYSTEM}", "pulsar").replace("%i", "east-1")
    _, *arguments = line.split()
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == WRONG_USE
    assert "/etc/trimtab/trimtab.toml" in result.output, "it came as far as its settings"


@each_unit
def test_a_crash_and_an_outage_are_started_again_and_what_a_person_has_to_mend_is_not(unit: Path):
    found = read(unit)
    service = found["Service"]
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == set(FINAL)
    assert {WRONG_USE, FENCED, REFUSED} == set(FINAL)
    assert UNREACHABLE not in FINAL
    assert found["Unit"]["StartLimitIntervalSec"] == "0", "systemd would give up after five quick failures"


@each_unit
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd here")
    text = unit.read_text().replace("/opt/trimtab/bin/trimtab", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@east-1")
    copy.write_text(text)
    done = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert copy.name not in done.stderr, done.stderr


def test_the_page_says_of_every_exit_code_what_becomes_of_it_under_systemd():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    rows = {int(row[0]): row for row in cells if len(row) == 4 and row[0].isdigit()}
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert set(rows) == codes
    assert {code for code, row in rows.items() if row[2] == "stays down"} == {exits.OK, *FINAL}
    assert {code for code, row in rows.items() if row[2] == "is restarted"} == {exits.FAILED, UNREACHABLE}


PACKAGES = {"policies", "state", "streaming"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    """The package, built twice: by ``sdist`` and ``wheel`` the two files."""
    found = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("dist")
        here = ("--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(ROOT))
        done = subprocess.run(
            [sys.executable, "-m", "uv", "build", "--quiet", *here],
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
        found.append({"sdist": sdist, "wheel": wheel})
    return found


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_the_package_is_built_of_the_same_bytes_each_time(built: list[dict[str, Path]], kind: str):
    first, second = (each[kind].read_bytes() for each in built)
    assert first == second


def test_the_wheel_is_what_runs_with_its_types_and_licence_and_nothing_else(built: list[dict[str, Path]]):
    names = set(ZipFile(built[0]["wheel"]).namelist())
    tops = {name.partition("/")[0] for name in names}
    (about,) = tops - PACKAGES
    assert about.endswith(".dist-info")
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {f"{about}/licenses/LICENSE", "streaming/spark/locks/spark-connector.lock"} <= names
    in_clone = {str(path.relative_to(ROOT)) for top in PACKAGES for path in (ROOT / top).rglob("*.py")}
    assert in_clone == {name for name in names if name.endswith(".py")}


def test_the_source_package_is_what_the_wheel_is_built_of(built: list[dict[str, Path]]):
    with tarfile.open(built[0]["sdist"]) as archive:
        names = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert {name.parts[0] for name in names} == PACKAGES | {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
    }


def test_a_spark_that_leaks_sockets_is_not_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pinned,) = (line for line in project["project"]["dependencies"] if line.startswith("pyspark"))
    assert pinned == "pyspark>=4.2.1,<4.3", "4.2.0 leaks one for each task of the Python state server"
    for lock in (LOCK, RUNTIME_LOCK):
        (version,) = re.findall(r"^pyspark==(\d+)\.(\d+)\.(\d+)", lock, re.MULTILINE)
        assert (4, 2, 1) <= tuple(map(int, version)) < (4, 3)
