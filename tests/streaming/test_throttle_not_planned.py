"""One odd partition or broker keeps no other from its plan: what is left out is named, and what can be read in two ways is said."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from policies.throttle.copies import DISK, REASSIGNMENT
from policies.throttle.needs import needs_of
from policies.throttle.roles import BrokerRole
from streaming.cli import main
from streaming.kafka.cluster import KafkaCluster, LogSizes, OffsetSpec, PartitionState, RunningMove
from streaming.kafka.throttles import Change, Throttle, ThrottlesFound
from streaming.planner import throttle_cluster
from streaming.planner.throttle_cluster import Survey, recovery_rows, survey
from streaming.planner.throttle_request import BadRequest, Checked, PartitionRow, ThrottleRequest
from streaming.process.exits import PARTIAL
from tests.policies.throttle.moving import GB, MB, Partition
from tests.streaming.throttle_plans import GOOD, WORKED, answer, plan, row

NO_LEADER = "no leader (-1), so nothing can be copied; bring one of the current replicas back first"


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"leader": -1}, NO_LEADER),
        ({"leader": None}, "leader missing; add what is missing"),
        ({"leader": 9}, "leader is 9, which is not among current_replicas [1, 2]"),
        ({"target_replicas": []}, "target_replicas is empty"),
        ({"target_replicas": [3, 3]}, "target_replicas is [3, 3]; give each broker once"),
        ({"target_replicas": [3, -4]}, "target_replicas is [3, -4]; a broker id is 0 to"),
        ({"replicas": [1]}, "has both of target_replicas and replicas"),
        ({"current_replicas": [1, 2, 4], "in_progress_adding_replicas": [4]}, "already being reassigned"),
        ({"write_bytes_per_s": -1}, "write_bytes_per_s is -1; expected 0 or more"),
        ({"log_size_bytes": 2**70}, "log_size_bytes is outside 0 to"),
        (
            {"write_bytes_per_s": "4e6"},
            "write_bytes_per_s is '4e6': Expected `int | float | null`, got `str`",
        ),
        ({"write_rate": 1}, "Object contains unknown field `write_rate`; a partition has topic, partition,"),
        ({"target_replicas": [2, None]}, "target_replicas[1] is null: Expected `int`, got `null`"),
        ({"topic": "no topic"}, "'no topic' is no topic name"),
    ],
)
def test_a_partition_that_cannot_be_planned_is_named_and_changes_nothing_for_the_others(
    odd: Mapping[str, object], reason: str
):
    wanted = answer(WORKED)
    for rows in ([{**GOOD, **odd}, *WORKED], [*WORKED, {**GOOD, **odd}]):
        result = plan(rows)
        name = f"{odd.get('topic', 't')}-0"
        assert result.exit_code == PARTIAL, result.output
        assert result.stderr.startswith(f"not planned: {name}: {reason}")
        found = json.loads(result.stdout)
        assert [(each["partition"], each["reason"][: len(reason)]) for each in found["not_planned"]] == [
            (name, reason)
        ]
        assert {**found, "not_planned": []} == wanted


def test_several_are_named_in_order_and_one_given_twice_is_named_once():
    odd = [{**GOOD, "partition": number, "leader": -1} for number in (5, 3)]
    result = plan([*odd, GOOD, GOOD, *WORKED])
    assert [each["partition"] for each in json.loads(result.stdout)["not_planned"]] == ["t-0", "t-3", "t-5"]
    assert "not planned: t-0: given twice; give each partition once\n" in result.stderr
    table = plan([*odd, GOOD, GOOD, *WORKED], "--format", "table").stdout
    assert "4 partitions are copied, 0 without data movement, 3 not planned;" in table
    assert "is the last\n3 partitions are not planned: t-0, t-3, t-5\n" in table
    assert "1 partition is not planned: t-5\n" in plan([odd[0], *WORKED], "--format", "table").stdout


@pytest.mark.parametrize("target", [[4, 5], [5, 4, 1, 2], [1]], ids=["fewer", "as many", "one"])
def test_a_target_among_the_present_replicas_copies_nothing_unless_more_is_said(target: list[int]):
    known = row(Partition("t-0", [1, 2, 4, 5], target, MB, GB))
    unsaid = {key: value for key, value in known.items() if key != "in_progress_adding_replicas"}
    (warning,) = cast("list[str]", answer([unsaid])["warnings"])
    for said in ("t-0", "runs already", "in_progress_adding_replicas", "isr", "--recovering", "--cluster"):
        assert said in warning
    assert answer([known])["warnings"] == [
        "no partition gains a replica: nothing is copied, so no throttle is needed"
    ]
    assert answer([{**unsaid, "isr": [1, 2, 4, 5]}])["warnings"] == answer([known])["warnings"]
    assert not any("runs already" in each for each in cast("list[str]", answer([GOOD])["warnings"]))


BACK = [
    row(Partition(f"t-{number}", [1, 2, 3], [1, 2, 3], MB, GB)) | {"leader": leader}
    for number, leader in enumerate((1, 2, 3))
]
"""Partitions that stay where they are. Broker 3 leads the last one, so it misses nothing of it."""
OUT_OF_SYNC = [each | {"isr": [1, 2]} for each in BACK[:2]]


@pytest.mark.parametrize(
    ("rows", "options"),
    [(BACK, ["--recovering", "3"]), ([*OUT_OF_SYNC, BACK[2]], [])],
    ids=["the broker is named", "the replicas in sync are named"],
)
def test_a_broker_that_comes_back_is_planned_from_the_file_with_whole_logs(
    rows: list[dict[str, object]], options: list[str]
):
    result = plan(rows, *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["partitions_moving"] == ["t-0", "t-1"]
    assert found["follower_throttled_replicas"] == {"t": "0:3,1:3"}
    assert found["follower_bytes_to_receive"] == {"3": 2 * GB}
    assert found["follower_min_bytes_per_s"] == {"3": 2 * MB}
    assert found["leader_min_bytes_per_s"] == {"1": 2 * MB, "2": 2 * MB}
    assert found["partitions_without_data_movement"] == ["t-2"]
    table = plan(rows, *options, "--format", "table").stdout
    assert table.startswith("2 partitions are copied, 1 without data movement")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (BACK, ["--recovering", "9"], "--recovering 9: no partition has a replica on it that another broker"),
        (BACK[2:], ["--recovering", "3"], "--recovering 3: no partition has a replica on it that another"),
        ([BACK[0] | {"isr": [1, 4]}], [], "t-0: isr is [1, 4], which are not all among current_replicas"),
        ([BACK[0] | {"isr": [2]}], [], "t-0: isr is [2] without the leader, 1, which is always in sync"),
    ],
    ids=["no replica", "it leads", "a stranger is in sync", "not the leader"],
)
def test_what_a_file_says_wrongly_of_a_broker_that_comes_back_is_refused(
    rows: list[dict[str, object]], options: list[str], said: str
):
    result = plan(rows, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_replica_that_leaves_fetches_nothing_and_a_broker_without_any_is_told():
    dead = row(Partition("t-0", [1, 2, 7], [1, 2, 3], MB, GB)) | {"isr": [1, 2]}
    result = plan([dead, BACK[1]], "--recovering", "3", "--recovering", "9")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["follower_bytes_to_receive"] == {"3": 2 * GB}
    assert any("--recovering 9: no partition has a replica" in each for each in found["warnings"])


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (
            OUT_OF_SYNC[0],
            "its broker fetches all that it missed at once, so it is in no batch; plan it without",
        ),
        (
            row(Partition("t-0", [1, 2], [1, 2], MB, GB)) | {"log_dirs": ["/b", "any"]},
            "a broker makes batches of its moves between disks itself, so it is in no batch; plan it without",
        ),
        (
            GOOD | {"write_bytes_per_s": None},
            "its write rate is unknown, so nobody can tell what a batch with it needs; give write_bytes_per_s",
        ),
    ],
    ids=["a broker that is back", "between disks", "no write rate"],
)
def test_what_goes_in_no_batch_is_named_and_the_rest_is_planned_in_batches(
    odd: dict[str, object], reason: str
):
    options = ["--cap", "22000000", "--batches", "auto"]
    result = plan([odd, *WORKED], *options)
    assert result.exit_code == PARTIAL, result.output
    assert result.stderr.startswith(f"not planned: t-0: {reason}")
    found = json.loads(result.stdout)
    assert [each["partition"] for each in found["not_planned"]] == ["t-0"]
    assert found["batches"] == answer(WORKED, *options)["batches"]
    alone = plan([odd], *options)
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert f"t-0: {reason}" in alone.stderr


def test_moves_between_disks_are_planned_from_the_file_beside_a_reassignment():
    stays = row(Partition("t-0", [1, 2], [1, 2], MB, GB)) | {"log_dirs": ["/b", "any"]}
    goes = row(Partition("t-1", [1, 2], [1, 3], MB, GB)) | {"log_dirs": ["/b", "/b"]}
    found = answer([stays, goes])
    assert found["partitions_moving"] == ["t-0", "t-1"]
    assert found["disk_bytes_to_copy"] == {"1": 2 * GB}
    assert found["disk_min_bytes_per_s"] == {"1": 2 * MB}
    assert found["follower_bytes_to_receive"] == {"3": GB}
    (warning,) = [each for each in cast("list[str]", found["warnings"]) if "log_dirs" in each]
    assert warning.startswith("by log_dirs 2 replicas move between disks of a broker: where each is now")
    assert "--cluster" in warning


def test_a_replica_that_is_being_added_is_no_move_between_disks():
    joins = row(Partition("t-0", [1, 2, 4], [1, 4], MB, GB, adding=[4])) | {"log_dirs": ["any", "/b"]}
    found = answer([joins])
    assert found["disk_bytes_to_copy"] == {}
    assert found["follower_bytes_to_receive"] == {"4": GB}


def test_what_is_not_planned_is_not_said_to_run_perhaps_and_a_long_name_is_said_once():
    same = {**GOOD, "target_replicas": GOOD["current_replicas"], "in_progress_adding_replicas": None}
    assert "runs already" not in plan([*[{**same, "partition": 7}] * 2, GOOD]).stdout
    found = cast("list[str]", answer([{**same, "topic": "t" * 230}, GOOD])["warnings"])
    (warning,) = [each for each in found if "ttt" in each]
    assert warning.startswith("t" * 230 + "-0: every target replica is among current_replicas")


class Cluster:
    """Stands in for a cluster of brokers of which some are down; its logs do not grow."""

    def __init__(
        self,
        *alive: int,
        states: Mapping[int, PartitionState],
        running: Mapping[int, RunningMove] | None = None,
    ) -> None:
        self.alive, self.asked = dict.fromkeys(alive, "host"), set[int]()
        self.states = {("t", number): state for number, state in states.items()}
        self.running = {("t", number): move for number, move in (running or {}).items()}
        self.usable_bytes: dict[int, int] = {}
        self.waited_s: list[float] = []
        self.changes: list[str] = []

    def brokers(self) -> dict[int, str]:
        return self.alive

    def partitions(self, _: object) -> dict[tuple[str, int], PartitionState]:
        return self.states

    def reassignments(self) -> dict[tuple[str, int], RunningMove]:
        return self.running

    def end_offsets(
        self, leaders: Mapping[tuple[str, int], int], *, at: OffsetSpec = OffsetSpec.LATEST
    ) -> dict[tuple[str, int], int]:
        return dict.fromkeys(leaders, 7 if at == OffsetSpec.LATEST else 0)

    def replica_end_offsets(
        self, _: int, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, 5)

    def log_sizes(self, _: object, brokers: set[int]) -> LogSizes:
        sizes = {
            where: dict.fromkeys(set(state.replicas) & brokers, GB) for where, state in self.states.items()
        }
        return LogSizes(
            sizes_bytes=sizes,
            usable_bytes=self.usable_bytes,
            failed={},
            directory_of={where: dict.fromkeys(state.replicas, "/a") for where, state in self.states.items()},
            directories=dict.fromkeys(brokers, ("/a", "/b")),
        )

    def throttle(self, *, topics: object, brokers: set[int]) -> ThrottlesFound:
        del topics
        self.asked = set(brokers)
        return ThrottlesFound(throttle=Throttle(), failed={})

    def apply(self, changes: Iterable[Change]) -> None:
        self.changes += map(str, changes)

    def survey(self, *targets: list[int]) -> Survey:
        rows = [
            PartitionRow(topic="t", partition=number, replicas=target)
            for number, target in enumerate(targets)
        ]
        return survey(
            cast("KafkaCluster", self),
            ThrottleRequest(partitions=rows),
            interval_s=5,
            wait=self.waited_s.append,
        )


def planned(cluster: Cluster, *rows: PartitionRow, recovering: Collection[int] = ()) -> Checked:
    request = ThrottleRequest(partitions=list(rows))
    kafka = cast("KafkaCluster", cluster)
    return survey(kafka, request, recovering=recovering, interval_s=5, wait=cluster.waited_s.append).checked


def test_directories_other_than_those_of_now_are_moves_between_disks():
    cluster = Cluster(1, 2, 3, states={0: at(1, 2), 1: at(1, 2)})
    rows = [
        PartitionRow(topic="t", partition=0, replicas=[1, 2], log_dirs=["/b", "any"]),
        PartitionRow(topic="t", partition=1, replicas=[2, 3], log_dirs=["/a", "/b"]),
    ]
    checked = planned(cluster, *rows)
    copies = checked.reassignment.copies
    assert [
        (copies.name(row), kind)
        for row, kind in zip(copies.destinations.rows.tolist(), copies.kind.tolist(), strict=True)
    ] == [
        ("t-0", DISK),
        ("t-1", REASSIGNMENT),
    ]
    assert checked.disk_threads == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize(
    ("directories", "reason"),
    [
        (["/nowhere", "any"], "broker 1 has no log directory /nowhere; it has /a, /b"),
        (["/b"], "log_dirs has 1 directories; give one for each replica, or any"),
    ],
)
def test_a_directory_that_is_not_there_is_named(directories: list[str], reason: str):
    row = PartitionRow(topic="t", partition=0, replicas=[1, 2], log_dirs=directories)
    with pytest.raises(BadRequest, match=reason):
        planned(Cluster(1, 2, states={0: at(1, 2)}), row)


def test_a_broker_that_is_away_is_planned_with_its_whole_logs_and_what_an_hour_adds():
    cluster = Cluster(1, 2, states={0: at(1, 2, 3), 1: at(2, 1)})
    rows = recovery_rows(cast("KafkaCluster", cluster), [3])
    assert [row.name for row in rows] == ["t-0"]
    written = (msgspec.structs.replace(row, write_bytes_per_s=1000) for row in rows)
    checked = planned(cluster, *written, recovering=[3])
    assert needs_of(checked.reassignment.copies).bytes_left[BrokerRole("follower", 3)] == GB
    assert any("if it has kept them, it lacks 3.6 MB for each hour" in note for note in checked.notes)


def test_a_broker_that_is_back_is_planned_with_what_it_lacks_by_its_offsets():
    cluster = Cluster(1, 2, 3, states={0: at(1, 2, 3)})
    checked = planned(cluster, *recovery_rows(cast("KafkaCluster", cluster), [3]), recovering=[3])
    assert needs_of(checked.reassignment.copies).bytes_left[BrokerRole("follower", 3)] == math.ceil(
        GB * 2 / 7
    )


def test_of_brokers_that_are_back_one_in_sync_is_named_and_the_others_are_planned():
    cluster, told = cast("KafkaCluster", Cluster(1, 2, states={0: at(1, 2, 3)})), list[str]()
    rows = recovery_rows(cluster, [1, 3], tell=told.append)
    assert [row.name for row in rows] == ["t-0"]
    assert told == ["--recovering 1: nothing is to be fetched, because all its replicas are in sync"]


def test_what_a_broker_missed_cannot_be_fetched_in_batches():
    command = ["throttle", "plan", "--recovering", "3", "--bootstrap", "b:1", "--batches", "2"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "fetches all that it missed at once" in result.stderr


@pytest.mark.parametrize(
    ("broker", "why"),
    [
        (1, "nothing is to be fetched, because all its replicas are in sync"),
        (3, "nothing is to be fetched, because no partition has a replica on it"),
        (9, "the cluster has no broker 9; it has 1, 2, 3"),
    ],
)
def test_a_broker_that_has_nothing_to_fetch_is_refused(broker: int, why: str):
    with pytest.raises(BadRequest, match=f"--recovering {broker}: {why}"):
        recovery_rows(cast("KafkaCluster", Cluster(1, 2, 3, states={0: at(1, 2)})), [broker])


def at(*replicas: int, leader: int | None = None) -> PartitionState:
    return PartitionState(
        replicas=replicas, leader=replicas[0] if leader is None else leader, in_sync=replicas[:1]
    )


def test_only_brokers_that_gain_a_replica_have_to_be_alive():
    cluster = Cluster(1, 2, 4, states={0: at(1, 2, 3), 1: at(1, 2, 3), 2: at(1, 2)})
    found = cluster.survey([1, 4, 3], [1, 2, 4], [1, 3])
    assert found.checked.reassignment.copies.names() == ["t-0", "t-1"]
    ((name, reason),) = found.checked.not_planned
    assert name == "t-2"
    assert reason == "broker 3 of the target is down, or there is none; up are 1, 2, 4"
    assert cluster.asked == {1, 2, 4}
    assert set(found.unreachable) == {3}
    assert any("broker 3 does not answer: it is down" in note for note in found.checked.notes)


@pytest.mark.parametrize(
    ("target", "options", "exit_code", "told"),
    [
        ([1, 4, 3], [], PARTIAL, "NOT set, the rates of broker 3: it is down. Until they are set, it may"),
        (
            [1, 2, 3],
            ["--recovering", "3"],
            0,
            "broker 3 is away, so it gets no rate of its own; the rates of",
        ),
    ],
    ids=["a source that is down", "a broker that is to recover"],
)
def test_the_exit_code_of_apply_says_whether_a_rate_that_is_needed_could_not_be_set(
    target: list[int], options: list[str], exit_code: int, told: str, monkeypatch: pytest.MonkeyPatch
):
    cluster = Cluster(1, 2, 4, states={0: at(1, 2, 3)})
    monkeypatch.setattr("streaming.kafka.cluster.cluster_of", lambda *_, **__: nullcontext(cluster))
    monkeypatch.setattr(throttle_cluster, "survey", partial(survey, wait=cluster.waited_s.append))
    moved = {"topic": "t", "partition": 0, "replicas": target, "write_bytes_per_s": MB}
    command = ["throttle", "plan", "--input", "-", "--bootstrap", "b:1", *options, "--apply"]
    result = CliRunner().invoke(main, command, input=json.dumps({"partitions": [moved]}))
    assert (result.exit_code, bool(cluster.changes)) == (exit_code, True), result.output
    assert told in result.stderr
    assert "everything was set" not in result.stderr


def test_a_running_move_to_a_broker_that_died_is_named_before_anything_is_measured():
    running = {0: RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,))}
    cluster = Cluster(1, 2, states={0: at(1, 2, 3)}, running=running)
    with pytest.raises(BadRequest, match="t-0: broker 3 of the target is down, or there is none"):
        cluster.survey([1, 3])
    assert cluster.waited_s == []


def test_a_request_without_partitions_is_a_plan_in_which_nothing_moves():
    found = Cluster(1, 2, states={}).survey().checked
    assert (len(found.reassignment.copies), found.not_planned) == (0, ())


def test_what_is_gone_moves_elsewhere_has_no_leader_or_no_room_is_named():
    running = {1: RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,))}
    states = {0: at(1, 2), 1: at(1, 2, 3), 3: at(1, 2, leader=-1), 4: at(1, 2)}
    cluster = Cluster(1, 2, 3, 4, 5, states=states, running=running)
    cluster.usable_bytes = {5: 1}
    found = cluster.survey([1, 3], [1, 4], [1, 3], [1, 3], [1, 5])
    assert found.checked.reassignment.copies.names() == ["t-0"]
    reasons: dict[str, Any] = dict(found.checked.not_planned)
    assert reasons == {
        "t-1": "already being reassigned, to [1, 3] and not to [1, 4]; cancel that move first, or plan with its targets",
        "t-2": "topic 't' has partitions 0 to 4",
        "t-3": NO_LEADER,
        "t-4": "broker 5 would receive 1.0 GB and has 1 B free: the plan is larger than its disks",
    }
