"""The unit for systemd: what is started again, and what is not."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from streaming.exits import FENCED, FINAL, REFUSED, UNREACHABLE, WRONG_USE

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
