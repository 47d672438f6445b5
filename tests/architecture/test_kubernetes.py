"""Tests the promises of the manifests in deploy/kubernetes: rights, bounds, probes, names that agree.

Kubernetes' own schemas are asked by ``./run deploy``, which needs an environment of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.http.app import create_app
from service.jobs.cluster import API_CONNECTIONS, WORKER_CONNECTIONS
from service.settings import Settings
from service.store import open_store
from service.store.migrate import upgrade
from tests.support.dockerfile import read_stages, stage_named

Document = dict[str, Any]


def documents(directory: Path) -> list[Document]:
    """All resources of one directory, as they stand."""
    return [
        document
        for path in sorted(directory.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document["kind"] != "Kustomization"
    ]


@pytest.fixture(scope="module")
def place(root: Path) -> Path:
    return root / "deploy/kubernetes"


@pytest.fixture(scope="module")
def everything(place: Path) -> list[Document]:
    return [document for name in sorted(place.iterdir()) if name.is_dir() for document in documents(name)]


@pytest.fixture(scope="module")
def pods(everything: list[Document]) -> dict[str, Document]:
    """Pod specifications that are whole, by the name of what makes them; patches are left out."""
    whole = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in everything
        if one["kind"] in ("Deployment", "Job") and "securityContext" in one["spec"]["template"]["spec"]
    }
    assert set(whole) == {"arenaplan-api", "arenaplan-migrate", "arenaplan-worker"}
    return whole


def test_every_pod_has_the_rights_that_restricted_allows(pods: dict[str, Document]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, level restricted."""
    for name, pod in pods.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        assert pod["automountServiceAccountToken"] is False, name
        assert all("emptyDir" in volume for volume in pod["volumes"]), name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_the_namespace_enforces_that(everything: list[Document]) -> None:
    (namespace,) = (one for one in everything if one["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_every_pod_is_bounded(pods: dict[str, Document]) -> None:
    for name, pod in pods.items():
        for container in pod["containers"]:
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["requests"]), name
            assert "memory" in resources["limits"], name
            assert "cpu" not in resources["limits"], f"{name}: throttling makes deadlines late"


def test_users_agree_with_the_image(pods: dict[str, Document], root: Path) -> None:
    user, group = map(
        int, stage_named(read_stages(root / "Dockerfile"), "service").only("USER").arguments.split(":")
    )
    for pod in pods.values():
        context = pod["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (user, group)


def test_pods_end_after_the_service_has_drained(pods: dict[str, Document], place: Path) -> None:
    settings = dict(one.split("=", 1) for one in literals(place))
    seconds = float(settings["ARENAPLAN_DRAIN_SECONDS"]) + float(settings["ARENAPLAN_SHUTDOWN_SECONDS"])
    for name in ("arenaplan-api", "arenaplan-worker"):
        assert pods[name]["terminationGracePeriodSeconds"] > seconds


def test_readiness_is_seen_before_the_port_is_closed(pods: dict[str, Document], place: Path) -> None:
    """Enough probes fail within the time for which the service says 503 and still answers."""
    probe = pods["arenaplan-api"]["containers"][0]["readinessProbe"]
    settings = dict(one.split("=", 1) for one in literals(place))
    assert probe["periodSeconds"] * probe["failureThreshold"] < float(settings["ARENAPLAN_DRAIN_SECONDS"])


def test_probes_and_scraping_ask_for_routes_that_exist(pods: dict[str, Document]) -> None:
    (container,) = pods["arenaplan-api"]["containers"]
    routes = set(create_app(Settings()).openapi()["paths"])
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[kind]["httpGet"]["path"] in routes
    assert container["ports"][0]["containerPort"] == Settings().port


def test_probes_of_workers_ask_at_their_port(pods: dict[str, Document]) -> None:
    (container,) = pods["arenaplan-worker"]["containers"]
    (port,) = container["ports"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["ARENAPLAN_WORKER_HEALTH_PORT"] == str(port["containerPort"])
    probes = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    assert {probe["port"] for probe in probes} == {port["name"]}


def literals(place: Path) -> list[str]:
    kustomization = yaml.safe_load((place / "base/kustomization.yaml").read_text(encoding="utf-8"))
    (generator,) = kustomization["configMapGenerator"]
    found: list[str] = generator["literals"]
    return found


def test_settings_exist_and_are_valid(
    everything: list[Document], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(one.split("=", 1) for one in literals(place))
    named = {
        variable["name"]
        for one in everything
        if one["kind"] in ("Deployment", "Job")
        for container in one["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env", ())
    }
    unknown = {
        name for name in named | set(given)
        if name.removeprefix("ARENAPLAN_").lower() not in Settings.model_fields
    }  # fmt: skip
    assert unknown == set()
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    Settings()


def test_versions_agree(place: Path, pyproject: dict[str, Any]) -> None:
    for name in ("base", "cluster"):
        kustomization = yaml.safe_load((place / name / "kustomization.yaml").read_text(encoding="utf-8"))
        assert kustomization["images"][0]["newTag"] == pyproject["project"]["version"]


def test_what_is_selected_exists(everything: list[Document]) -> None:
    """Services, budgets and policies that select nothing would protect nothing."""
    components = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for one in everything
        if one["kind"] in ("Deployment", "Job") and "metadata" in one["spec"]["template"]
    }
    for one in everything:
        if one["kind"] == "Service":
            assert one["spec"]["selector"]["app.kubernetes.io/component"] in components
        elif one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] in components
        elif one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]
            chosen = set(selector.get("matchLabels", {}).values())
            chosen |= {value for rule in selector.get("matchExpressions", ()) for value in rule["values"]}
            assert chosen <= components


def test_the_queue_is_measured_with_a_query_that_runs(everything: list[Document], tmp_path: Path) -> None:
    """KEDA's question, put to the tables as this version makes them."""
    (scaled,) = (one for one in everything if one["kind"] == "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    upgrade(store)
    with store.transaction(reads=True) as connection:
        assert connection.exec_driver_sql(trigger["metadata"]["query"]).scalar() == 0
    store.close()


def test_connections_fit_the_default_of_postgresql(
    everything: list[Document], pods: dict[str, Document], place: Path
) -> None:
    """100, of which 3 are for superusers and some for people; with pods that an update starts and ends."""
    deployments = {
        one["metadata"]["name"]: one["spec"]
        for one in documents(place / "cluster")
        if one["kind"] == "Deployment"
    }
    (scaled,) = (one for one in everything if one["kind"] == "ScaledObject")
    most = {
        "arenaplan-api": deployments["arenaplan-api"]["replicas"],
        "arenaplan-worker": scaled["spec"]["maxReplicaCount"],
    }
    beside = {"arenaplan-api": API_CONNECTIONS, "arenaplan-worker": WORKER_CONNECTIONS}
    needed = {"arenaplan-migrate": 1, "keda": 1}
    for name, replicas in most.items():
        spec = deployments[name]
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        # So that the one before has ended when the next one starts.
        assert spec["minReadySeconds"] >= pods[name]["terminationGracePeriodSeconds"]
        (container,) = pods[name]["containers"]
        given = {one["name"]: one.get("value") for one in container.get("env", ())}
        each = int(given.get("ARENAPLAN_DATABASE_CONNECTIONS") or Settings().database_connections)
        needed[name] = (replicas + 2) * (each + beside[name])
    people = 5
    assert sum(needed.values()) + people <= 100 - 3, needed
    text = (place.parent / "README.md").read_text(encoding="utf-8")
    assert f"{sum(needed.values())} of 97" in text


def test_nothing_is_reachable_unless_a_policy_says_so(everything: list[Document]) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in everything if one["kind"] == "NetworkPolicy"}
    assert policies["arenaplan-nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, spec in policies.items():
        for rule in [*spec.get("ingress", ()), *spec.get("egress", ())]:
            assert rule["ports"], f"{name} opens every port"
    outside = policies["arenaplan-outside"]["egress"][0]["to"][0]["ipBlock"]
    assert "169.254.0.0/16" in outside["except"], "the metadata service of clouds"


def test_budgets_leave_room_for_a_drain(everything: list[Document]) -> None:
    """A budget that allows no pod to go would stop every update of a node."""
    replicas: dict[str, int] = {}
    for one in everything:
        if one["kind"] == "Deployment" and "replicas" in one["spec"]:
            name = one["metadata"]["name"]
            replicas[name] = max(one["spec"]["replicas"], replicas.get(name, 0))
    for one in everything:
        if one["kind"] == "PodDisruptionBudget" and "minAvailable" in one["spec"]:
            assert one["spec"]["minAvailable"] < replicas[one["metadata"]["name"]]


@pytest.mark.parametrize("variant", ["cluster", "autoscaling"])
def test_kustomize_builds_it(place: Path, variant: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    ran = subprocess.run(
        ["kubectl", "kustomize", str(place / variant)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    built = list(yaml.safe_load_all(ran.stdout))
    assert all(one["metadata"]["namespace"] == "arenaplan" for one in built if one["kind"] != "Namespace")
    images = {
        container["image"]
        for one in built
        if one["kind"] in ("Deployment", "Job")
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    assert all(re.fullmatch(r"registry\.example/arenaplan:\d+\.\d+\.\d+", image) for image in images), images
    if variant == "autoscaling":
        (worker,) = (
            one
            for one in built
            if one["metadata"]["name"] == "arenaplan-worker" and one["kind"] == "Deployment"
        )
        assert "replicas" not in worker["spec"], "KEDA's, which an apply would set back"
