"""Generated requests against the service's OpenAPI document: none may be answered by a fault.

For every operation, half of the requests are as the document says and half are not (schemathesis).
Every answer must have a status, a content type and a body that the document declares, and what is
as documented must not be refused for its form.

    python benchmarks/serve_fuzz.py [requests]
"""

import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def fuzz(url: str, requests: int) -> Counter[tuple[str, int]]:
    """So many requests, or some more, spread over the operations; how each was answered."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    every: list[Any] = list(schema.get_all_operations())
    operations = [found.ok() for found in every]
    each = -(-requests * 5 // (8 * len(operations)))  # some have fewer cases than that
    found: Counter[tuple[str, int]] = Counter()
    for operation in operations:
        for mode in GenerationMode:
            try:
                strategy = operation.as_strategy(generation_mode=mode)
                _run(strategy, each, lambda case, name=operation.label: _ask(case, name, found))
            except Unsatisfiable:
                if mode is GenerationMode.POSITIVE or operation.body or operation.query:
                    raise  # else there is nothing that could be given wrongly
    return found


def _run(strategy: Any, count: int, ask: Callable[[Any], None]) -> None:
    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=strategy)
    def run(case: Any) -> None:
        ask(case)

    run()


def _ask(case: Any, name: str, found: Counter[tuple[str, int]]) -> None:
    parameters = case.path_parameters
    if parameters and "name" in parameters and len(str(case.body)) % 8:  # mostly one that is there
        parameters["name"] = "default"
    response = case.call(timeout=60)
    found[name, response.status_code] += 1
    case.validate_response(response, checks=CHECKS)


def main(requests: int = 1000) -> None:
    import uvicorn

    from ensemble_sampling.serve.http.admission import Limits
    from ensemble_sampling.serve.http.app import build
    from ensemble_sampling.serve.run import Server, bind
    from ensemble_sampling.serve.service import Service

    listening = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as place:
        service = Service(place, limits=Limits(rate=0.0))
        config = uvicorn.Config(build(service), ws="none", lifespan="on", log_config=None)
        server = Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            while httpx.get(f"{url}/readyz").status_code != 200:
                time.sleep(0.1)
            began = time.perf_counter()
            found = fuzz(url, requests)
            seconds = time.perf_counter() - began
        finally:
            server.should_exit = True
            thread.join()
    for (name, status), count in sorted(found.items()):
        print(f"{count:6}  {status}  {name}")
    faults = sum(count for (_, status), count in found.items() if status >= 500)
    print(f"{found.total()} requests in {seconds:.0f} s, {faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
