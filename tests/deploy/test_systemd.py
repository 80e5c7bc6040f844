"""The unit for systemd: what is started again, and what is not."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from streaming.process import exits
from streaming.process.exits import FENCED, FINAL, REFUSED, UNREACHABLE, WRONG_USE

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "trimtab.service"


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_a_crash_and_an_outage_are_started_again_and_what_a_person_has_to_mend_is_not() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == set(FINAL)
    assert {WRONG_USE, FENCED, REFUSED} == set(FINAL)
    assert UNREACHABLE not in FINAL
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0", "systemd would give up after five quick failures"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd here")
    text = UNIT.read_text().replace("/opt/trimtab/bin/trimtab", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert UNIT.name not in done.stderr, done.stderr


def test_the_page_says_of_every_exit_code_what_becomes_of_it_under_systemd() -> None:
    page = (UNIT.parents[2] / "docs" / "operations.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    rows = {int(row[0]): row for row in cells if len(row) == 5 and row[0].isdigit()}
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert set(rows) == codes
    assert {code for code, row in rows.items() if row[3] == "stays down"} == {exits.OK, *FINAL}
    assert {code for code, row in rows.items() if row[3] == "is restarted"} == {exits.FAILED, UNREACHABLE}
