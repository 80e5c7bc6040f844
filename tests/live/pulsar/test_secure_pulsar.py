"""A real broker that asks for a token and speaks TLS: what is read and moved with the right one, and what is said otherwise."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from deploy.local.secure_pulsar import SecurePulsar
from policies.splitting.positions import position_of
from streaming.contract.messages import LoadReportMessage, type_of
from streaming.executor import pulsar as executor
from streaming.executor.metrics import ExecutorMetrics
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, HttpClient
from streaming.settings import PulsarTarget, Settings
from tests.live.driving import command, until
from tests.live.pulsar.lab import CLUSTER, target_of

pytestmark = pytest.mark.live


def target_with(secured: SecurePulsar, token: str, directory: Path) -> PulsarTarget:
    file = directory / "token"
    file.write_text(token + "\n")
    return PulsarTarget(
        admin_url=secured.secure_admin_url,
        ca_file=str(secured.ca_file),
        token_file=str(file),
        web_port=secured.secure_port,
    )


def collect(target: PulsarTarget, directory: Path, *, code: int = 0) -> Result:
    """One sweep to standard output."""
    values = {name: getattr(target, name) for name in ("admin_url", "ca_file", "token_file", "web_port")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
    config = directory / "trimtab.toml"
    config.write_text("\n".join([f'[targets."{CLUSTER}".pulsar]', *lines]))
    asked = ("collect", "pulsar", CLUSTER, "--config", str(config), "--once", "--stdout")
    return command(*asked, code=code)


def test_with_a_super_users_token_over_tls_it_reads_reports_and_moves_a_bundle(
    secured: SecurePulsar, tmp_path: Path
) -> None:
    target = target_of(secured)
    done = collect(target, tmp_path)
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()].count(
        type_of(LoadReportMessage)
    ) == 1
    with HttpClient(target) as http:
        admin = PulsarAdmin(http, target)
        broker, *_ = admin.brokers(secured.cluster)
        topic = "persistent://public/default/moved"
        admin.call("PUT", "/admin/v2/persistent/public/default/moved")
        admin.lookup(topic)
        bundles = admin.bundles("public/default")
        bundle = next(each for each in bundles if each.range.contains(position_of(topic)))
        assert admin.owner(bundle, [broker]) == broker

        def is_let_go() -> bool:
            return admin.owner(bundle, [broker]) is None

        admin.unload(bundle, destination=None)
        until(is_let_go, what="the bundle to be let go", running=[secured])


@pytest.mark.parametrize(
    ("role", "message"),
    [("somebody", "superUserRoles"), (None, "token_file or token_env")],
)
def test_a_wrong_token_and_a_missing_permission_are_refused_with_the_remedy(
    secured: SecurePulsar, tmp_path: Path, role: str | None, message: str
) -> None:
    token = "not.a.token" if role is None else secured.token_of(role)
    target = target_with(secured, token, tmp_path)
    done = collect(target, tmp_path, code=5)
    assert message in done.stderr
    assert token not in done.stderr
    with ExitStack() as stack, pytest.raises(AdminError, match=message):
        executor.start(
            stack, Settings(), ExecutorMetrics(CLUSTER), cluster=CLUSTER, target=target, dry_run=False
        )


def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedy(
    secured: SecurePulsar, tmp_path: Path
) -> None:
    done = collect(replace(target_of(secured), ca_file=None), tmp_path, code=5)
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    assert "check ca_file" in done.stderr
