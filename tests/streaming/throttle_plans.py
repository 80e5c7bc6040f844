"""``trimtab throttle plan`` as tests run it: partitions, the request, and the answer."""

import json
from collections.abc import Mapping, Sequence

from click.testing import CliRunner, Result

from streaming.cli import main
from tests.policies.throttle.moving import GB, MB, WORKED_EXAMPLE, Partition


def row(one: Partition) -> dict[str, object]:
    """One partition as the command reads it."""
    return {
        "topic": one.topic,
        "partition": one.number,
        "current_replicas": list(one.replicas),
        "in_progress_adding_replicas": list(one.adding),
        "target_replicas": list(one.target),
        "leader": one.replicas[0] if one.leader is None else one.leader,
        "write_bytes_per_s": one.writes,
        "log_size_bytes": one.size,
    }


WORKED = [row(one) for one in WORKED_EXAMPLE]
GOOD = row(Partition("t-0", [1, 2], [2, 3], 4 * MB, GB))


def plan(given: Sequence[Mapping[str, object]] | str | bytes, *options: str) -> Result:
    """Run the command on partitions, or on a text as it is."""
    text = given if isinstance(given, (str, bytes)) else json.dumps({"partitions": given})
    return CliRunner().invoke(main, ["throttle", "plan", "--input", "-", *options], input=text)


def answer(given: Sequence[Mapping[str, object]], *options: str, exit_code: int = 0) -> dict[str, object]:
    result = plan(given, *options)
    assert (result.exit_code, result.stderr) == (exit_code, ""), result.output
    return json.loads(result.stdout)
