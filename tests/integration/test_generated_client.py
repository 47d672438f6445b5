"""The OpenAPI document is good enough for a generator of clients: what it writes plans a graph."""

from __future__ import annotations

import hashlib
import importlib
import json
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from service.http.bodies import MODEL_TYPES
from service.http.examples import example
from solver.documents import load_plan
from tests.support.onnx_models import perceptron
from tests.support.server import Server

generator = pytest.importorskip("openapi_python_client")
config = pytest.importorskip("openapi_python_client.config")

# The generator writes `1and`; its users let ruff format that.
pytestmark = pytest.mark.filterwarnings("ignore:invalid decimal literal")


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The package that openapi-python-client writes; everything in the document is understood."""
    package: Path = tmp_path_factory.mktemp("generated") / "generated_client"
    settings = config.Config.from_sources(
        config.ConfigFile(
            post_hooks=[], content_type_overrides=dict.fromkeys(MODEL_TYPES, "application/octet-stream")
        ),
        config.MetaType.NONE,
        document_source=f"{server.url}/openapi.json",
        file_encoding="utf-8",
        overwrite=False,
        output_path=package,
    )
    assert generator.generate(config=settings) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(package.parent)
        return importlib.import_module(package.name)


def part(client: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{client.__name__}.{name}")


@pytest.mark.parametrize("name", ["tiny", "mnist"])
def test_a_graph_gets_its_plan(client: ModuleType, server: Server, name: str) -> None:
    models, plans = part(client, "models"), part(client, "api.plans.plan_unversioned")
    with client.Client(base_url=server.url) as service:
        answer = plans.sync_detailed(client=service, body=models.PlanRequest.from_dict(example(name)))
    assert answer.status_code == 200
    assert isinstance(answer.parsed, models.PlanDocument)
    assert answer.parsed.to_dict() == json.loads(answer.content)
    assert answer.parsed.digest == load_plan(answer.content).digest


def test_a_job_has_typed_options(client: ModuleType, server: Server) -> None:
    """Of a plan of a graph, and of how a stored model is trained; nothing else is sent with them."""
    models, jobs = part(client, "models"), part(client, "api.jobs.submit_job")
    result = part(client, "api.jobs.get_job_result")
    model = perceptron().SerializeToString()
    digest = hashlib.sha256(model).hexdigest()
    orders: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"request": models.JobRequestRequestType0.from_dict({"graph": example("tiny")["graph"]})}, {}),
        ({"graph": digest}, {"loss": models.JobOptionsLossType0("cross-entropy"), "dim": ["n=4"]}),
    )
    headers = {"content-type": "application/octet-stream"}
    with client.Client(base_url=server.url) as service:
        http = service.get_httpx_client()
        assert http.put(f"/v1/graphs/{digest}", content=model, headers=headers).is_success
        for more, chosen in orders:
            options = models.JobOptions(
                capacity="1MiB", only=[models.JobOptionsOnlyType0Item("order")], **chosen
            )
            body = models.JobRequest(task=models.JobRequestTask("plan"), options=options, **more)
            answer = jobs.sync_detailed(client=service, body=body)
            assert isinstance(answer.parsed, models.JobDocument), answer.content
            http.get(answer.parsed.links.events)  # ends with the job
            plan = load_plan(result.sync_detailed(answer.parsed.id, client=service).content)
            assert (plan.options.capacity, plan.options.order) == (2**20, True)


def test_a_model_gets_its_plan_with_a_loss(client: ModuleType, server: Server) -> None:
    models, types = part(client, "models"), part(client, "types")
    plans = part(client, "api.plans.plan_unversioned")
    with client.Client(base_url=server.url) as service:
        answer = plans.sync_detailed(
            client=service,
            body=types.File(payload=BytesIO(perceptron().SerializeToString())),
            loss=models.PlanUnversionedLoss("cross-entropy"),
            batch="1..4",
            capacity="1MiB",
            only=[models.PlanUnversionedOnlyItem("order")],
            tiers=[],
        )
    assert isinstance(answer.parsed, models.PlanDocument)
    plan = load_plan(answer.content)
    assert (plan.options.capacity, plan.options.order, plan.options.batch) == (2**20, True, 4)
