"""Connections: what is refused, which settings the clients get, and that no secret is shown anywhere."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from streaming.cli import main
from streaming.kafka import client
from streaming.kafka.client import ClusterError, explain_denied
from streaming.kafka.link import (
    KafkaLink,
    TopicPermissions,
    controller_operations,
    find_denied,
    input_link,
    output_link,
)
from streaming.process.exits import WrongUse
from streaming.settings import MetricsSettings, SecuritySettings, Settings, SettingsError, TopicNames, load
from tests.streaming.commands import leaves

SECRET = "hush-hush"  # noqa: S105  stands in for one
SASL = '[input]\nurl = "kafka://b:9093"\n[input.security]\nprotocol = "sasl_ssl"\nusername = "trimtab"\n'
DOCS = Path(__file__).parents[2] / "docs" / "run"


def loaded(tmp_path: Path, toml: str, **environ: str) -> Settings:
    file = tmp_path / "trimtab.toml"
    file.write_text(toml)
    return load(file=file, flags={}, environ=environ).settings


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ('protocol = "sasl_ssl"\nusername = "u"', "needs either password or password_file"),
        ('protocol = "sasl_ssl"\npassword = "p"', "username is unset"),
        (
            'protocol = "sasl_ssl"\nusername = "u"\npassword = "hush-hush"\npassword_file = "f"',
            "and not both",
        ),
        ('password = "hush-hush"', "password is set, but protocol 'plaintext' does not use it"),
        ('username = "u"', "username is set, but protocol 'plaintext' does not use it"),
        ('ca_file = "ca.pem"', "ca_file is set, but protocol 'plaintext' does not use it"),
        ('protocol = "ssl"\nkey_file = "k.pem"', "certificate_file and key_file belong together"),
        ('protocol = "tls"', 'expected one of "plaintext", "ssl", "sasl_plaintext", "sasl_ssl", found "tls"'),
        ("password = 4711", "expected a text in quotes, found something else (not shown: it is a secret)"),
    ],
)
def test_security_that_does_not_fit_together_is_refused_by_name_and_no_secret_is_quoted(
    tmp_path: Path, lines: str, complaint: str
):
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, f"[input.security]\n{lines}\n")
    assert complaint in str(caught.value)
    assert "input.security" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "4711" not in str(caught.value)


def test_security_of_an_output_without_an_address_is_refused(tmp_path: Path):
    with pytest.raises(SettingsError, match="set url too"):
        loaded(tmp_path, '[output.security]\nprotocol = "ssl"\n')


def test_the_output_is_connected_to_as_the_input_unless_it_has_an_address(tmp_path: Path):
    same = loaded(tmp_path, f'{SASL}password = "{SECRET}"\n')
    assert output_link(same) == input_link(same)
    other = loaded(tmp_path, f'{SASL}password = "{SECRET}"\n[output]\nurl = "kafka://c:9092"\n')
    assert output_link(other).client_options()["security_protocol"] == "PLAINTEXT"
    assert output_link(other).bootstrap == "c:9092"


@pytest.mark.parametrize("form", ["toml", "json"])
def test_config_does_not_show_a_secret_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text(SASL)
    result = CliRunner().invoke(
        main, ["config", "--format", form], env={"TRIMTAB_INPUT__SECURITY__PASSWORD": SECRET}
    )
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    assert "environment TRIMTAB_INPUT__SECURITY__PASSWORD" in result.stdout
    if form == "toml":
        assert "# input.security.password is set and not shown" in result.stdout
    else:
        assert json.loads(result.stdout)["input.security.password"]["value"] == "**********"


def test_config_hides_what_spark_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text(
        f'[spark.extra]\n"spark.authenticate.secret" = "{SECRET}"\n"spark.x" = "shown"\n'
    )
    message = CliRunner().invoke(main, ["config"]).stdout
    assert SECRET not in message
    assert '# spark.extra."spark.authenticate.secret" is set and not shown' in message
    assert 'spark.extra."spark.x" = "shown"' in message


def test_no_repr_of_settings_shows_a_secret(tmp_path: Path):
    settings = loaded(tmp_path, f'{SASL}password = "{SECRET}"\n')
    assert SECRET not in f"{settings!r} {settings} {settings.input!r} {input_link(settings)!r}"


def test_both_clients_are_told_the_same_user_password_and_authority(tmp_path: Path):
    ca = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca)
    secret = tmp_path / "secret"
    secret.write_text('he said "no"\\\n')
    link = input_link(loaded(tmp_path, f'{SASL}ca_file = "{ca}"\npassword_file = "{secret}"\n'))
    assert link.principal == "User:trimtab"
    assert link.client_options() == {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "trimtab",
        "sasl_plain_password": 'he said "no"\\',
    }
    spark = link.spark_options()
    assert spark["kafka.ssl.truststore.certificates"] == ca.read_text()
    assert spark["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="trimtab" password="he said \"no\"\\";'
    )


def test_a_client_certificate_reaches_both_clients(tmp_path: Path):
    client_certificate(tmp_path)
    link = input_link(loaded(tmp_path, CLIENT_CERTIFICATE.format(tmp_path)))
    assert link.client_options() == {
        "security_protocol": "SSL",
        "ssl_certfile": f"{tmp_path}/cert",
        "ssl_keyfile": f"{tmp_path}/key",
    }
    assert link.spark_options() == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": (tmp_path / "cert").read_text(),
        "kafka.ssl.keystore.key": (tmp_path / "key").read_text(),
    }


CLIENT_CERTIFICATE = (
    '[input.security]\nprotocol = "ssl"\ncertificate_file = "{0}/cert"\nkey_file = "{0}/key"\n'
)


def client_certificate(directory: Path) -> None:
    issued = trustme.CA().issue_cert("trimtab")
    issued.cert_chain_pems[0].write_to_path(directory / "cert")
    issued.private_key_pem.write_to_path(directory / "key")


def test_certificates_that_no_client_can_use_are_named_with_their_settings(tmp_path: Path):
    client_certificate(tmp_path)
    other = trustme.CA().issue_cert("trimtab")
    other.private_key_pem.write_to_path(tmp_path / "key")
    link = input_link(loaded(tmp_path, CLIENT_CERTIFICATE.format(tmp_path)))
    with pytest.raises(
        WrongUse, match=r"certificate_file .*/cert and key_file .*/key cannot be used: .*mismatch"
    ):
        link.client_options()
    (tmp_path / "key").unlink()
    with pytest.raises(WrongUse, match=r"input\.security\.key_file: .*/key cannot be read: No such file"):
        link.client_options()
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----")
    text = f'[input.security]\nprotocol = "ssl"\nca_file = "{ca}"\n'
    with pytest.raises(WrongUse, match=r"^input\.security: ca_file .*/ca\.pem cannot be used: "):
        input_link(loaded(tmp_path, text)).client_options()


def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path):
    settings = loaded(tmp_path, f'{SASL}password_file = "{tmp_path}/nothing"\n')
    with pytest.raises(
        WrongUse,
        match=r"input\.security\.password_file: .*/nothing cannot be read: No such file or directory$",
    ):
        input_link(settings).client_options()


def test_a_password_file_that_is_being_replaced_counts_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    password = tmp_path / "password"
    password.write_text("before\n")
    link = input_link(loaded(tmp_path, f'{SASL}password_file = "{password}"\n'))

    def used() -> object:
        return link.client_options()["sasl_plain_password"]

    assert [used()] == ["before"]
    password.unlink()
    assert [used()] == ["before"]
    assert f"{password} cannot be read: No such file or directory; it could be used before" in caplog.text
    password.write_text("after\n")
    assert [used()] == ["after"]


def test_metrics_listen_on_this_machine_alone_unless_told_otherwise():
    assert MetricsSettings().host == "127.0.0.1"


def test_the_documented_permissions_of_the_controller_are_those_it_checks():
    chapter = (DOCS / "security.md").read_text().split("### The controller\n", 1)[1].split("\n##", 1)[0]
    documented = {
        name: tuple(operations.split(", "))
        for name, operations in re.findall(r"^\| topic `([^`]+)` \| ([^|]+) \|", chapter, flags=re.MULTILINE)
    }
    names = TopicNames()
    assert documented == controller_operations(names)


ALL = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


@pytest.mark.parametrize(
    ("allowed", "hidden", "lacking"),
    [
        pytest.param(ALL, False, None, id="everything is allowed"),
        pytest.param(None, False, None, id="a broker that lists no operations is trusted"),
        pytest.param(ALL - {"READ"}, False, "Read", id="one is missing"),
        pytest.param(frozenset({"DESCRIBE"}), False, "Read and DescribeConfigs", id="two are missing"),
        pytest.param(None, True, "Read", id="a hidden topic lacks at least one"),
    ],
)
def test_what_is_missing_on_a_topic_is_named_with_the_command_that_allows_it(
    allowed: frozenset[str] | None,
    hidden: bool,  # noqa: FBT001  a column of the table
    lacking: str | None,
):
    names = TopicNames()
    seen = [TopicPermissions(name=names.input, hidden=hidden, allowed=allowed)]
    found = [str(denied) for denied in find_denied(HERE, names, seen)]
    if lacking is None:
        assert found == []
        return
    options = " ".join(f"--operation {each}" for each in lacking.split(" and "))
    command = f"--add --allow-principal 'User:trimtab' {options} --topic trimtab.input"
    (sentence,) = found
    assert sentence.startswith(
        f"User:trimtab lacks the permission {lacking} on topic trimtab.input. Run: kafka-acls.sh"
    )
    assert sentence.endswith(command)


HERE = KafkaLink(
    "b:9093",
    security=SecuritySettings(protocol="sasl_ssl", username="trimtab", password_file="secret"),  # noqa: S106  a file
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            TopicAuthorizationFailedError(),
            "Write on topic trimtab.input. Run: {acls} --operation Write --topic trimtab.input",
        ),
        (GroupAuthorizationFailedError(), "Read on group g-1. Run: {acls} --operation Read --group g-1"),
        (ClusterAuthorizationFailedError(), "Write on the cluster. Run: {acls} --operation Write --cluster"),
        (
            KafkaError(
                "Unexpected error in InitProducerIdResponse: [Error 31] ClusterAuthorizationFailedError"
            ),
            "Write on topic trimtab.input. Run: {acls} --operation Write --topic trimtab.input",
        ),
    ],
)
def test_what_kafka_refuses_is_told_as_the_permission_that_is_missing(error: KafkaError, message: str):
    acls = "kafka-acls.sh --bootstrap-server b:9093 --add --allow-principal 'User:trimtab'"
    wanted = f"User:trimtab lacks the permission {message.format(acls=acls)}"
    assert explain_denied(error, HERE, "Write", topic="trimtab.input", group="g-1") == wanted


NO_TOPIC = "there is no such topic (any more), or it has no leader: `trimtab doctor` says which, `trimtab topics create` makes it"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KafkaTimeoutError("late"), "late"),
        (KafkaTimeoutError(), "no answer in time"),
        (KafkaConnectionError("111 ECONNREFUSED"), "Connection refused"),
        (NotLeaderForPartitionError(), "not leader for partition"),
        (KafkaTimeoutError("Failed to update metadata after 20.0 secs."), NO_TOPIC),
        (UnknownTopicOrPartitionError(), NO_TOPIC),
    ],
)
def test_another_error_of_kafka_is_told_in_words_without_its_class(error: KafkaError, words: str):
    assert explain_denied(error, HERE, "Read", topic="t") == words


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (UnknownTopicOrPartitionError.errno, r"^there is no topic t at b:9093: run `trimtab topics create`$"),
        (TopicAuthorizationFailedError.errno, "^User:trimtab lacks the permission Read on topic t"),
        (
            None,
            "run `trimtab topics create`. If there is one, User:trimtab lacks the permission Read on topic t",
        ),
    ],
    ids=["there is none", "it is hidden", "nobody answers that"],
)
def test_a_topic_that_is_not_seen_is_missing_or_hidden_as_the_brokers_say(
    monkeypatch: pytest.MonkeyPatch, answer: int | None, said: str
):
    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[Any]:
        if answer is None:
            raise ClusterError("no answer")
        yield SimpleNamespace(describe_topics=lambda names: [{"name": names[0], "error_code": answer}])

    monkeypatch.setattr(client, "connected", connected)
    assert re.search(said, client.describe_missing_topic(HERE, "t", "Read"))


def test_no_option_of_any_command_takes_a_secret():
    found = [
        f"{' '.join(path)} {option}"
        for path, command in leaves(main)
        for each in command.params
        for option in each.opts
    ]
    assert "throttle plan --input" in found, "commands below groups are looked at too"
    assert not [option for option in found if re.search("pass|secret|token", option)]
