"""Generated requests against the OpenAPI document (the long version: benchmarks/serve_fuzz.py)."""

import importlib.util
from collections import defaultdict
from pathlib import Path

import httpx
from services import running

from ensemble_sampling.serve.http.admission import Limits
from ensemble_sampling.serve.http.api import OPERATIONS
from ensemble_sampling.serve.http.openapi import DESCRIPTIONS, document, statuses

FILE = Path(__file__).parents[2] / "benchmarks" / "serve_fuzz.py"


def test_generated_requests_meet_no_fault_and_answers_are_as_documented(tmp_path):
    spec = importlib.util.spec_from_file_location("serve_fuzz", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with running(tmp_path, limits=Limits(rate=0.0)) as (url, _):
        found = module.fuzz(url, 100)
    assert found.total() >= 100
    assert {name for name, _ in found} == {f"{o.method} {o.path}" for o in OPERATIONS}
    assert max(status for _, status in found) < 500
    for status in (200, 400, 404):
        assert status in {status for _, status in found}


def test_the_document_has_every_operation_once_and_every_status_it_can_give():
    found = document(OPERATIONS)
    assert found["openapi"] == "3.1.0"
    said = [(path, method) for path, methods in found["paths"].items() for method in methods]
    assert sorted(said) == sorted((o.path, o.method.lower()) for o in OPERATIONS)
    names = [o["operationId"] for methods in found["paths"].values() for o in methods.values()]
    assert len(set(names)) == len(names)
    for each in OPERATIONS:
        responses = found["paths"][each.path][each.method.lower()]["responses"]
        given = {each.status, *each.others, *statuses(each)}
        assert set(map(int, responses)) == given
        assert given <= DESCRIPTIONS.keys()
    decide = found["paths"]["/v1/bandits/{name}/choose"]["post"]
    everything = "200 400 401 403 404 408 409 413 421 429 503"
    assert " ".join(sorted(decide["responses"])) == everything


def test_documented_examples_are_accepted_and_patterns_end_where_the_text_does(tmp_path):
    with running(tmp_path) as (url, _), httpx.Client(base_url=url, timeout=60) as http:
        for each in OPERATIONS:
            parts = defaultdict(lambda: "x", name="default", decision="0-0")
            path = each.path.format_map(parts)
            found = http.request(each.method, path, json=each.example)
            # What the examples speak of may not be there; but they are well-formed.
            said = f"{each.method} {each.path} with the example {each.example}: {found.text}"
            assert found.status_code in (200, 201, 204, 404, 409), said
        said = http.get("/openapi.json").text
    assert "\\Z" not in said
    assert '"^[a-z0-9][a-z0-9_-]{0,39}$"' in said
