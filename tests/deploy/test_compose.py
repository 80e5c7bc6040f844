"""The compose file: what it mounts is there, what it names is pinned, and Compose's own loader takes it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.programs import GoProgram

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
def test_what_a_service_mounts_is_in_the_clone_or_a_declared_volume_and_read_only_where_it_is_ours(
    name: str,
) -> None:
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
def test_images_are_pinned_and_nothing_listens_beyond_this_machine(name: str) -> None:
    service = services()[name]
    assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), service["image"]
    assert service["network_mode"] == "host"
    text = json.dumps([service.get("command", []), service.get("environment", {})])
    assert "127.0.0.1" in text
    assert "0.0.0.0" not in text  # noqa: S104  the point


def test_files_that_settings_of_a_service_name_are_inside_its_mounts() -> None:
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
def test_composes_own_loader_takes_the_file_and_sees_every_mount() -> None:
    done = LOADER.run("-format", "json", FILE, cwd=DEPLOY)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert loaded["services"].keys() == services().keys()
    for service in loaded["services"].values():
        for mount in service["volumes"]:
            assert mount["type"] == "volume" or Path(mount["source"]).is_dir(), mount


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_composes_own_loader_refuses_what_is_not_in_the_specification(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("network_mode:", "network_mood:"))
    done = LOADER.run(wrong, cwd=tmp_path)
    assert done.returncode != 0
    assert "network_mood" in done.stderr


def test_the_readme_leads_from_the_demo_to_the_dashboards_in_two_commands() -> None:
    page = (DEPLOY.parent / "README.md").read_text()
    block = next(each for each in page.split("```")[1::2] if "docker compose" in each)
    commands = [line.partition("#")[0].split() for line in block.strip().splitlines()]
    up, look = commands
    assert up[:2] == ["docker", "compose"]
    assert DEPLOY.parent / up[up.index("-f") + 1] == FILE
    address = services()["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"]
    assert look == ["open", f"http://{address}:3000"], "Grafana's own port"
