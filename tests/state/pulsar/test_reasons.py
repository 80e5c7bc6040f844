"""The sentences of actions that no scenario shows."""

import pytest

from policies.shedding import uniform_load_shedder
from policies.shedding.registry import POLICIES, AnyPolicy
from state.pulsar.shedding import reason
from tests.policies.fleets import evidence_names

BUNDLE = {"bundle_messages_per_s": 12.0, "bundle_bytes_per_s": 2e7}
THROUGHPUT = {
    "broker_bytes_per_s": 9e8,
    "lowest_bytes_per_s": 1e8,
    "throughput_multiple": 9.0,
    "allowed_throughput_multiple": 4.0,
}


@pytest.mark.parametrize(
    ("destination", "placed", "expected"),
    [
        (None, {}, ""),
        ("b3", {"destination_messages_per_s": 40.0}, " to b3, the least busy at 40 messages/s"),
        ("b3", {"destination_usage_points": 12.34}, " to b3, the least used at 12.3 %"),
    ],
)
def test_a_throughput_too_far_above_another_says_both_and_who_chose_the_destination(
    destination: str | None, placed: dict[str, float], expected: str
) -> None:
    sentence = reason(
        policy=uniform_load_shedder.POLICY,
        trigger="throughput-multiple",
        bundle="t/n/0x0_0x1",
        owner="b1",
        source="b1",
        partner="b2",
        destination=destination,
        evidence=BUNDLE | THROUGHPUT | placed,
    )
    assert sentence == (
        "b1 carries 900000000 bytes/s, 9.0 times the 100000000 of b2 with 4 times allowed: "
        f"moving t/n/0x0_0x1 (12 messages/s, 20000000 bytes/s){expected}"
    )


@pytest.mark.parametrize(
    ("policy", "trigger"),
    [(policy, trigger) for policy in POLICIES for trigger in policy.sentences],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_rule_that_can_fire_has_a_sentence_of_numbers_that_the_policy_gives(
    policy: AnyPolicy, trigger: str
) -> None:
    sentence = reason(
        policy=policy,
        trigger=trigger,
        bundle="t/n/0x0_0x1",
        owner="b1",
        source="b1",
        partner="b2",
        destination=None,
        evidence=BUNDLE | dict.fromkeys(evidence_names(policy), 1.0),
    )
    assert sentence.startswith("b1 ")
    assert "moving t/n/0x0_0x1" in sentence


def test_a_bundle_that_a_swap_brings_back_is_said_to_come_in_return() -> None:
    policy = next(each for each in POLICIES if each.name == "transfer-shedder")
    sentence = reason(
        policy=policy,
        trigger="overloaded",
        bundle="t/n/0x0_0x1",
        owner="b2",
        source="b1",
        partner="b2",
        destination="b1",
        evidence=BUNDLE | dict.fromkeys(evidence_names(policy), 1.0),
    )
    assert sentence.startswith("b1 publishes")
    assert "moving t/n/0x0_0x1 from b2 in return (" in sentence
