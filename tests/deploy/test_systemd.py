"""The units for systemd: what they run, what is started again, and what is not."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.process import exits
from streaming.process.exits import FENCED, FINAL, REFUSED, UNREACHABLE, WRONG_USE

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def read(unit: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_there_is_a_unit_of_each_program() -> None:
    assert [unit.name for unit in UNITS] == [
        "trimtab-collect@.service",
        "trimtab-execute@.service",
        "trimtab.service",
    ]


@each_unit
def test_what_a_unit_starts_is_a_command_with_its_options(unit: Path) -> None:
    line = read(unit)["Service"]["ExecStart"].replace("${SYSTEM}", "pulsar").replace("%i", "east-1")
    _, *arguments = line.split()
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == WRONG_USE
    assert "/etc/trimtab/trimtab.toml" in result.output, "it came as far as its settings"


@each_unit
def test_a_crash_and_an_outage_are_started_again_and_what_a_person_has_to_mend_is_not(unit: Path) -> None:
    found = read(unit)
    service = found["Service"]
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == set(FINAL)
    assert {WRONG_USE, FENCED, REFUSED} == set(FINAL)
    assert UNREACHABLE not in FINAL
    assert found["Unit"]["StartLimitIntervalSec"] == "0", "systemd would give up after five quick failures"


@each_unit
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
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


def test_the_page_says_of_every_exit_code_what_becomes_of_it_under_systemd() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    rows = {int(row[0]): row for row in cells if len(row) == 5 and row[0].isdigit()}
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert set(rows) == codes
    assert {code for code, row in rows.items() if row[3] == "stays down"} == {exits.OK, *FINAL}
    assert {code for code, row in rows.items() if row[3] == "is restarted"} == {exits.FAILED, UNREACHABLE}
