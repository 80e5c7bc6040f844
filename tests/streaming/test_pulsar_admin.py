"""The admin client against a broker that answers as a healthy one never would: loops, 412, 500, no answer."""

import json
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
import trustme

from policies.splitting.ranges import Bundle
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import PASSING, AdminError, CredentialsError, HttpClient
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, Broker, Brokers, answer_owner, http_brokers

TOKEN = "eyJhbGciOi.secret.part"  # noqa: S105  made up
BUNDLE = Bundle.parse("t/n/0x00000000_0x40000000")


def admin_of(url: str, *, timeout_s: float = 5.0, token_file: Path | None = None) -> PulsarAdmin:
    target = PulsarTarget(admin_url=url, timeout_s=timeout_s, token_file=token_file and str(token_file))
    return PulsarAdmin(HttpClient(target), target)


def test_a_redirect_is_followed_with_method_body_and_authorization(brokers: Brokers, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    owner = brokers(lambda _: (204, {}, b""))
    asked = brokers(lambda request: (307, {"Location": f"{owner.url}{request.path}&authoritative=true"}, b""))
    admin_of(asked.url, token_file=token).split(BUNDLE, [7, 9])
    (sent,) = owner.asked
    assert (sent.method, json.loads(sent.body), sent.authorization) == ("PUT", [7, 9], f"Bearer {TOKEN}")
    assert sent.path == (
        "/admin/v2/namespaces/t/n/0x00000000_0x40000000/split"
        "?splitAlgorithmName=specified_positions_divide&unload=false&authoritative=true"
    )


def test_if_nobody_answers_it_names_the_address_of_the_settings_not_one_found_behind_it():
    with http_brokers() as make:
        found = make(lambda _: (200, {}, b"[]"))
        entry = make(lambda _: (200, {}, json.dumps([found.url.removeprefix("http://")]).encode()))
        admin = admin_of(entry.url)
        admin.brokers("c")
    with pytest.raises(AdminError, match=entry.url) as raised:
        admin.brokers("c")
    assert found.url not in str(raised.value)
    assert "; 1 other broker of the cluster did not answer either" in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["a broker's id", "another name"])
def test_the_owner_of_a_bundle_is_found_whichever_address_the_settings_have(brokers: Brokers, host: str):
    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/brokers/c"):
            return 200, {}, json.dumps([id_]).encode()
        return (200, {}, b"{}") if BUNDLE.namespace in asked.path else answer_owner(asked, "")

    broker = brokers(answer)
    id_ = broker.url.removeprefix("http://")
    admin = admin_of(f"http://{host}:{broker.server.server_port}")
    assert admin.owner(BUNDLE, admin.brokers("c")) == id_
    assert admin.owner(Bundle("t/unowned", BUNDLE.range), admin.brokers("c")) is None


@pytest.mark.parametrize(
    ("status", "body", "failure", "message"),
    [
        (401, b'{"reason": "HTTP 401 Unauthorized"}', "unauthorized", "token_file or token_env"),
        (403, b'{"reason": "not a super-user"}', "forbidden", "superUserRoles"),
        (404, b'{"reason": "Namespace does not exist"}', "not-found", "Namespace does not exist"),
        (409, b'{"reason": "inactive destination"}', "conflict", "inactive destination"),
        (412, b'{"reason": "Invalid upper boundary"}', "refused", "Invalid upper boundary"),
        (429, b"", "busy", "ask less often"),
        (500, b'{"reason": "\\n --- An unexpected error\\n"}', "broker-failed", "--- An unexpected error."),
        (503, b"<html>proxy</html>", "broker-failed", "<html>proxy</html>"),
    ],
)
def test_every_refusal_names_the_call_what_was_said_and_the_remedy(
    brokers: Brokers, status: int, body: bytes, failure: str, message: str
):
    broker = brokers(lambda _: (status, {}, body))
    with pytest.raises(AdminError) as raised:
        admin_of(broker.url).unload(BUNDLE, destination="b2:8080")
    assert (raised.value.failure, raised.value.status) == (failure, status)
    assert f"PUT {broker.url}/admin/v2/namespaces/t/n/0x00000000_0x40000000/unload" in str(raised.value)
    assert message in str(raised.value)
    assert "Remedy: " in str(raised.value)


def test_brokers_that_send_each_other_the_request_are_not_followed_for_ever(brokers: Brokers):
    here: list[Broker] = []
    here.append(brokers(lambda request: (307, {"Location": f"{here[1].url}{request.path}"}, b"")))
    here.append(brokers(lambda request: (307, {"Location": f"{here[0].url}{request.path}"}, b"")))
    with pytest.raises(AdminError, match="8 redirects") as raised:
        admin_of(here[0].url).unload(BUNDLE, destination=None)
    assert raised.value.failure == "redirect-loop"
    assert len(here[0].asked) + len(here[1].asked) == 8


@pytest.mark.parametrize(
    "body", [None, b'{"boundaries": ["0x00000000", "0xffffffff"]}'], ids=["never", "by byte"]
)
def test_a_broker_that_answers_too_slowly_is_left_in_time(brokers: Brokers, body: bytes | None):
    broker = brokers(lambda _: (200, {}, body))
    broker.pause_s = 0.1
    began_s = time.monotonic()
    with pytest.raises(AdminError, match=r"no answer within 0\.5 s") as raised:
        admin_of(broker.url, timeout_s=0.5).boundaries("t/n")
    assert raised.value.failure == "no-answer"
    assert time.monotonic() - began_s < 2


def test_redirects_do_not_make_a_call_longer(brokers: Brokers):
    here: list[Broker] = []
    here.append(brokers(lambda request: (307, {"Location": f"{here[0].url}{request.path}"}, b"...")))
    here[0].pause_s = 0.1
    with pytest.raises(AdminError, match=r"no answer within 0\.5 s") as raised:
        admin_of(here[0].url, timeout_s=0.5).boundaries("t/n")
    assert raised.value.failure == "no-answer"
    assert len(here[0].asked) == 2


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"boundaries": 7}', b'{"other": []}'])
def test_something_else_at_the_address_is_called_that(brokers: Brokers, body: bytes):
    broker = brokers(lambda _: (200, {}, body))
    with pytest.raises(AdminError, match="check admin_url") as raised:
        admin_of(broker.url).boundaries("t/n")
    assert raised.value.failure == "not-pulsar"


def test_a_port_that_closes_the_connection_is_said_to_speak_no_http_perhaps():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        closed = f"{address} closed the connection without an answer: perhaps it does not speak HTTP, which"
        with pytest.raises(AdminError, match=f"^{closed} admin_url asks for ") as raised:
            admin_of(f"http://{address}").boundaries("t/n")
    assert raised.value.failure == "unreachable"


def test_an_address_that_is_down_is_stepped_over_and_one_that_refuses_is_not(brokers: Brokers):
    good = brokers(lambda _: (200, {}, b'{"boundaries": ["0x00000000", "0xffffffff"]}'))
    refusing = brokers(lambda _: (403, {}, b""))
    assert admin_of(f"http://127.0.0.1:1,{good.url[7:]}").boundaries("t/n") == [0, 0xFFFFFFFF]
    with pytest.raises(AdminError, match="super-user"):
        admin_of(f"{refusing.url},{good.url[7:]}").boundaries("t/n")


def test_a_certificate_that_ca_file_does_not_vouch_for_is_no_broker_that_is_down(tmp_path: Path):
    """The failure does not go away by itself, so no start waits for that."""
    signer, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    signer.issue_cert("127.0.0.1").configure_cert(context)
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with http_brokers(context) as make:
        broker = make(lambda _: (200, {}, b"{}"))
        target = PulsarTarget(admin_url=broker.url, ca_file=str(tmp_path / "other.pem"))
        with pytest.raises(AdminError, match="check ca_file") as raised:
            PulsarAdmin(HttpClient(target), target).boundaries("t/n")
    assert raised.value.failure == "untrusted"
    assert raised.value.failure not in PASSING


def test_a_token_is_read_anew_for_every_call_and_is_part_of_no_error(brokers: Brokers, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    broker = brokers(lambda _: (401, {}, b"no"))
    admin = admin_of(broker.url, token_file=token)
    with pytest.raises(AdminError) as raised:
        admin.tenants()
    assert TOKEN not in str(raised.value)
    token.write_text("renewed")
    with pytest.raises(AdminError):
        admin.tenants()
    assert [request.authorization for request in broker.asked] == [f"Bearer {TOKEN}", "Bearer renewed"]


@pytest.mark.parametrize(
    "text", ["", " \n", f"{TOKEN}\nolder", f"# ours\n{TOKEN}", f"\ufeff{TOKEN}", "t\u00f6ken"]
)
def test_what_no_header_can_carry_is_no_token_and_is_not_shown(tmp_path: Path, text: str):
    token = tmp_path / "token"
    token.write_text(text, encoding="utf-8")
    with pytest.raises(CredentialsError, match=f"token_file {token} holds") as raised:
        admin_of("http://a:1", token_file=token)
    assert not any(word in str(raised.value) for word in (TOKEN, "older", "ours", "ken\n"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            PulsarTarget(token_file="/nowhere/token"),  # noqa: S106
            "token_file /nowhere/token cannot be read: No such file or directory$",
        ),
        (PulsarTarget(token_env="NO_SUCH_TOKEN"), "NO_SUCH_TOKEN, which token_env names, holds no token"),  # noqa: S106
        (PulsarTarget(admin_url="https://b:8443", ca_file="/nowhere/ca"), "ca_file '/nowhere/ca'"),
    ],
)
def test_credentials_that_cannot_be_read_are_named_before_any_call(target: PulsarTarget, message: str):
    with pytest.raises(CredentialsError, match=message):
        HttpClient(target, environ={})


def test_a_broker_is_asked_at_the_port_of_its_id_unless_another_is_set():
    target = PulsarTarget(admin_url="https://a:8443", web_port=8443)
    admin = PulsarAdmin(HttpClient(target), target)
    assert admin.address_of("b2.example:8080") == "https://b2.example:8443"
    assert admin_of("http://a:1").address_of("b2.example:8080") == "http://b2.example:8080"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"admin_url": "http://user:word@host:8080"}, "'http://…@host:8080'"),
        ({"admin_url": "host:8080"}, "expected http://host:port"),
        ({"token_file": "a", "token_env": "B"}, "give one of them"),
        ({"token_env": TOKEN}, "(not shown)"),
        ({"ca_file": "a"}, "plain http"),
        ({"admin_url": "https://h:1", "key_file": "a"}, "belong together"),
    ],
)
def test_a_target_without_sense_is_refused_without_showing_secrets(settings: dict[str, object], message: str):
    with pytest.raises(ValueError) as raised:  # noqa: PT011  what it says is the point
        PulsarTarget(**settings)
    assert message in str(raised.value)
    assert "word@" not in str(raised.value)
    assert TOKEN not in str(raised.value)
