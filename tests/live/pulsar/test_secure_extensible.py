"""A broker with the extensible load manager that asks for a token and speaks TLS: what it publishes is read with the settings of the admin API."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streaming.contract.messages import BrokerLoadMessage, TickMessage
from streaming.pulsar.load_data import LOAD_TOPIC
from tests.live.driving import until
from tests.live.pulsar.hearing import Heard, collector
from tests.live.pulsar.lab import Lab, target_of
from tests.support.secure_pulsar import SUPER_USER, SecurePulsar

pytestmark = [pytest.mark.live, pytest.mark.slow]

VARIABLE = "TRIMTAB_TEST_PULSAR_TOKEN"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePulsar]:
    with SecurePulsar(tmp_path_factory.mktemp("secured"), load_manager="extensible") as running:
        yield running


@pytest.mark.parametrize("given_by", ["file", "variable"])
def test_what_a_broker_publishes_is_read_over_tls_with_the_collectors_token(
    secured: SecurePulsar, monkeypatch: pytest.MonkeyPatch, given_by: str
) -> None:
    lab, heard, target = Lab(secured), Heard(), target_of(secured)
    if given_by == "variable":
        monkeypatch.setenv(VARIABLE, secured.token_of(SUPER_USER))
        target = replace(target, token_file=None, token_env=VARIABLE)
    assert lab.admin.service_url(LOAD_TOPIC) == secured.secure_service_url
    bundle = lab.bundles()[0]
    owner = lab.assigned(bundle)
    collecting = collector(target, heard)

    def is_published() -> bool:
        assert collecting.sweep()
        found = heard.of(BrokerLoadMessage).get(owner, {"topBundlesLoadData": []})
        return str(bundle) in {each["bundleName"] for each in found["topBundlesLoadData"]}  # type: ignore[attr-defined]

    with lab.traffic([lab.topic_in(bundle)]):
        until(is_published, what=f"{bundle} published by {owner}", running=[secured])
    collecting.close()
    assert str(bundle) in heard.of(BrokerLoadMessage)[owner]["bundles"]  # type: ignore[operator]
    assert heard.of(TickMessage)["tick"] == {"asked": [owner], "failed": {}}
