"""What Helm makes of the chart: valid for Kubernetes, understood by trimtab, without rights it does not need."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from streaming.cli import main
from streaming.cli.services import collect_command
from streaming.settings import load
from tests.support.programs import GoProgram

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/trimtab"

HELM = GoProgram(
    "helm", "helm.sh/helm/v3/cmd/helm", "v3.18.6", "the chart is NOT linted, rendered or validated"
)

KUBERNETES = "1.31.0"
"""What the templates are told they are rendered for; Helm built from its module does not know of new ones."""

Manifest = dict[str, Any]


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

EVERYTHING = Path(__file__).parent / "values" / "everything.yaml"
VERSIONS = ("1.25", KUBERNETES, kubernetes_validate.latest_version())
"""The oldest that Chart.yaml allows, the one it is rendered for, and the newest whose schemas are there."""
SETTINGS = "/etc/trimtab/settings/trimtab.toml"


def targets_values() -> dict[str, Any]:
    """A collector and an executor of a cluster of each system that this trimtab can reach."""
    systems = sorted(collect_command.commands)
    assert systems == ["kafka", "pulsar"]
    roles = {"collect": {"enabled": True}, "execute": {"enabled": True, "dryRun": True}}
    return {
        "settings": {"targets": {f"East.{system}": {system: {}} for system in systems}},
        "targets": {f"East.{system}": {"system": system, **roles} for system in systems},
    }


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    for manifest in manifests:
        if manifest["kind"] in {"StatefulSet", "Deployment"}:
            yield manifest["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def check_valid(manifests: list[Manifest]) -> None:
    """Against Kubernetes' own schemas, which do not know the kinds of the Prometheus operator."""
    for manifest in manifests:
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]
    assert len(set(names)) == len(names), "two objects of one name"


def check_understood(manifests: list[Manifest], directory: Path) -> Any:
    """The settings that trimtab reads from the rendered file."""
    maps = (manifest["data"] for manifest in manifests if manifest["kind"] == "ConfigMap")
    text = next(data["trimtab.toml"] for data in maps if "trimtab.toml" in data)
    file = directory / "trimtab.toml"
    file.write_text(text)
    every = [each for pod in pods(manifests) for each in containers(pod)]
    environ = {entry["name"]: "given" for each in every for entry in each.get("env", [])}
    return load(file=file, flags={}, environ=environ).settings


def check_commands(manifests: list[Manifest]) -> None:
    """Each container's arguments are a command of this trimtab."""
    for pod in pods(manifests):
        for container in containers(pod):
            command: click.Command | None = main
            words = list(container["args"])
            while isinstance(command, click.Group):
                command = command.get_command(click.Context(command), words.pop(0))
            assert command is not None, container["args"]
            command.make_parser(click.Context(command)).parse_args(list(words))
            assert words[-2:] == ["--config", SETTINGS]


def check_unprivileged(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        assert pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        for container in containers(pod):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {"/tmp", "/var/lib/trimtab"} <= mounted  # noqa: S108  in the container


def checked(directory: Path, *values: Path) -> tuple[list[Manifest], Any]:
    """What Helm makes of the values, and the settings in it: valid, understood, and without rights it does not need."""
    manifests = render(*values)
    check_valid(manifests)
    check_commands(manifests)
    check_unprivileged(manifests)
    return manifests, check_understood(manifests, directory)


def test_the_chart_is_clean_for_helm_with_its_own_and_with_full_values():
    for options in ((), ("--values", EVERYTHING)):
        done = helm("lint", "--strict", CHART, "--kube-version", KUBERNETES, *options)
        assert done.returncode == 0, done.stdout + done.stderr


def test_by_default_one_controller_in_dry_run_keeps_its_checkpoint_in_a_volume(tmp_path: Path):
    manifests, settings = checked(tmp_path)
    assert (settings.controller.mode, settings.metrics.port) == ("dry-run", 9464)
    stateful = only(manifests, "StatefulSet")["spec"]
    assert (stateful["replicas"], stateful["volumeClaimTemplates"][0]["metadata"]["name"]) == (1, "data")
    kinds = sorted(manifest["kind"] for manifest in manifests)
    assert kinds == ["ConfigMap", "Service", "ServiceAccount", "StatefulSet"]
    (container,) = only(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_with_everything_on_it_is_valid_and_says_what_the_values_say(tmp_path: Path):
    manifests, settings = checked(tmp_path, EVERYTHING)
    assert settings.spark.checkpoint == "s3a://bucket/trimtab/checkpoint"
    assert settings.pulsar.avg_shedder.low_threshold_points == 12.5
    assert settings.clusters["east-1.eu"].pulsar.rounds.length_s == 30
    assert settings.spark.extra == {"spark.hadoop.fs.s3a.path.style.access": "true"}
    assert "volumeClaimTemplates" not in only(manifests, "StatefulSet")["spec"]


SHARED = [
    ({"enabled": False}, "s3a://bucket/trimtab/checkpoint"),
    ({"enabled": True, "existingClaim": "shared"}, "/var/lib/trimtab/checkpoint"),
]


@pytest.mark.parametrize(("persistence", "checkpoint"), SHARED)
def test_two_controllers_share_a_checkpoint_and_are_spread(
    tmp_path: Path, persistence: dict[str, Any], checkpoint: str
):
    values = {"replicas": 2, "persistence": persistence, "settings": {"spark": {"checkpoint": checkpoint}}}
    manifests, _ = checked(tmp_path, values_file(tmp_path, values))
    stateful = only(manifests, "StatefulSet")["spec"]
    assert (stateful["replicas"], stateful["podManagementPolicy"]) == (2, "Parallel")
    pod = stateful["template"]["spec"]
    assert pod["containers"][0]["args"][:2] == ["run", "--standby"]
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
    assert "volumeClaimTemplates" not in stateful
    budget = only(manifests, "PodDisruptionBudget")["spec"]
    assert budget["selector"] == stateful["selector"]


def test_secrets_appear_as_references_only():
    (pod,) = pods(render(EVERYTHING))
    (container,) = pod["containers"]
    assert container["env"] == [
        {
            "name": "TRIMTAB_INPUT__SECURITY__PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "kafka-user", "key": "password"}},
        }
    ]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["ca"]


def test_collectors_and_executors_run_commands_that_exist_and_read_targets_that_are_there(tmp_path: Path):
    wanted = targets_values()
    manifests, settings = checked(tmp_path, values_file(tmp_path, wanted))
    assert set(settings.targets) == set(wanted["targets"])
    asked = {tuple(pod["containers"][0]["args"][:3]) for pod in pods(manifests)}
    for cluster, target in wanted["targets"].items():
        assert {("collect", target["system"], cluster), ("execute", target["system"], cluster)} <= asked


def test_load_reports_may_come_from_pulsar(tmp_path: Path):
    given = {
        "settings": {
            "input": {
                "url": "pulsar+ssl://broker-1:6651",
                "pulsar": {
                    "admin_url": "https://broker-1:8443",
                    "token_file": "/etc/trimtab/secrets/pulsar/token",
                    "ca_file": "/etc/trimtab/secrets/pulsar/ca.crt",
                },
            },
            "output": {"url": "kafka://kafka-0:9092"},
        },
        "secrets": {"files": [{"secret": "pulsar", "path": "/etc/trimtab/secrets/pulsar"}]},
    }
    manifests, settings = checked(tmp_path, values_file(tmp_path, given))
    assert settings.input.is_pulsar
    assert settings.output_bootstrap == "kafka-0:9092"
    (pod,) = pods(manifests)
    mounted = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert "/etc/trimtab/secrets/pulsar" in mounted


def test_dashboards_and_rules_in_the_cluster_are_the_files_beside_the_chart():
    manifests = render(EVERYTHING)
    boards = {
        name: text
        for manifest in manifests
        if manifest["kind"] == "ConfigMap"
        for name, text in manifest["data"].items()
        if name.endswith(".json")
    }
    files = {path.name: path.read_text().rstrip() for path in (CHART / "files/dashboards").glob("*.json")}
    assert {name: text.rstrip() for name, text in boards.items()} == files
    assert len(files) >= 3
    groups = [
        group
        for path in sorted((CHART / "files/prometheus").glob("*.rules.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert only(manifests, "PrometheusRule")["spec"]["groups"] == groups


def test_alerts_link_to_runbooks_where_they_are_served(tmp_path: Path):
    given = {"prometheusRule": {"enabled": True, "runbookBaseUrl": "https://wiki.example/trimtab/"}}
    groups = only(render(values_file(tmp_path, given)), "PrometheusRule")["spec"]["groups"]
    urls = [
        rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule
    ]
    assert "https://wiki.example/trimtab/down.md" in urls
    assert all(url.startswith("https://wiki.example/trimtab/") for url in urls)


def test_prometheus_finds_the_controller_under_the_job_that_rules_and_dashboards_name():
    manifests = render(EVERYTHING)
    monitor, service = only(manifests, "ServiceMonitor")["spec"], only(manifests, "Service")
    labels = service["metadata"]["labels"]
    assert labels[monitor["jobLabel"]] == "trimtab"
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    pod_labels = only(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pod_labels.items()


IMPOSSIBLE = [
    ({"persistence": {"enabled": False}}, "which ends with the pod"),
    ({"replicas": 2}, "would have a checkpoint of its own: set persistence.existingClaim"),
    ({"settings": {"spark": {"checkpoint": "/data/checkpoint"}}}, "outside the volume"),
    ({"settings": {"metrics": {"host": "127.0.0.1"}}}, "where no probe reaches it"),
    ({"settings": {"metrics": {"port": 0}}}, "the probes need to know the port"),
    ({"targets": {"east-1": {"system": "pulsar"}}}, 'settings.targets."east-1".pulsar'),
    ({"settings": {"controller": {"mode": "on"}}}, "/settings/controller/mode"),
    ({"settings": {"input": {"security": {"password": "hunter2"}}}}, "password"),
]


@pytest.mark.parametrize(("values", "message"), IMPOSSIBLE)
def test_what_could_not_work_is_refused_with_the_reason(values: dict[str, Any], message: str, tmp_path: Path):
    given = ("--values", values_file(tmp_path, values))
    done = helm("template", "ours", CHART, "--kube-version", KUBERNETES, *given)
    assert done.returncode != 0
    assert message in done.stderr.replace("\\", "")


def helm(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it; what it says is part of a failure."""
    return HELM.run(*arguments)


def values_file(directory: Path, values: object) -> Path:
    """Values as a file."""
    made = directory / "values.yaml"
    made.write_text(yaml.safe_dump(values))
    return made


def render(*values: Path) -> list[Manifest]:
    """All manifests of a release called `ours`, with these values over the chart's."""
    options = [part for file in values for part in ("--values", str(file))]
    done = helm("template", "ours", CHART, "--kube-version", KUBERNETES, *options)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest is not None]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found
