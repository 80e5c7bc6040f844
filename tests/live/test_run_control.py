"""Operators' commands against a running controller: what they write is obeyed, and what it decided can be asked for."""

import pytest

from tests.live.driving import Warm
from tests.live.operating import operate
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_a_cluster_is_paused_resumed_and_changed_by_commands_and_its_actions_can_be_watched_and_asked_about(
    stage: Stage, warm: Warm
) -> None:
    operate(stage, warm)
