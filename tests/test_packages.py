"""The wheel and the source archive are whole, and README works in an environment of its own."""

import json
import os
import re
import site
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from test_docs import ROOT, blocks

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=ENVIRONMENT, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path) -> Path:
    """An empty one, whose `bin` is returned; pip of the tests' installs into it."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin"


def install(bin: Path, *what):
    run(sys.executable, "-m", "pip", "--python", bin / "python", "install", "--quiet", *what)


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> tuple[Path, Path]:
    """(wheel, source archive) of this checkout."""
    folder = tmp_path_factory.mktemp("packages")
    bin = environment(folder / "builder")
    install(bin, "--constraint", ROOT / "constraints.txt", "hatchling")
    run(bin / "python", "-m", "hatchling", "build", "-d", folder / "dist", cwd=ROOT)
    (wheel,), (archive,) = (list((folder / "dist").glob(f"*.{end}")) for end in ("whl", "tar.gz"))
    return wheel, archive


def test_both_packages_hold_all_that_is_in_the_source(packages):
    source = {p for p in (ROOT / "src").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    expected = {p.relative_to(ROOT / "src").as_posix() for p in source if ".egg" not in str(p)}
    wheel, archive = packages
    held = set(zipfile.ZipFile(wheel).namelist())
    assert expected == {name for name in held if ".dist-info/" not in name}
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {f"src/{name}" for name in expected} <= names
    wanted = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt", "mkdocs.yml"}
    assert wanted | {"tests/test_packages.py", "docs/index.md", "pyproject.toml"} <= names


def until_ready(url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=60):
            return
        time.sleep(0.1)
    raise AssertionError("the service did not become ready")


def test_the_source_archive_makes_the_same_wheel(packages, tmp_path):
    wheel, archive = packages
    bin = wheel.parent.parent / "builder" / "bin"
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-w", tmp_path)
    run(sys.executable, "-m", "pip", "--python", bin / "python", "wheel", *options, archive)
    (made,) = tmp_path.glob("*.whl")
    assert made.name == wheel.name
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
        for name in one.namelist():
            assert name.endswith("RECORD") or one.read(name) == other.read(name)


def test_readme_works_where_only_the_wheel_was_installed(packages, tmp_path):
    """Its dependencies are those of the tests' environment, which takes no time to install."""
    bin = environment(tmp_path / "empty")
    install(bin, "--no-index", "--no-deps", packages[0])
    (inside,) = (tmp_path / "empty").glob("lib/python*/site-packages")
    (inside / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    check_readme(bin, tmp_path)


def test_readme_works_in_an_empty_environment_with_what_the_wheel_asks_for(packages, tmp_path):
    """Nothing that the wheel forgot to ask for is there by luck."""
    bin = environment(tmp_path / "empty")
    try:
        install(bin, "--constraint", ROOT / "constraints.txt", f"{packages[0]}[serve]")
    except AssertionError as error:
        if "connection" in str(error).lower():
            pytest.skip("no package index can be reached")
        raise
    check_readme(bin, tmp_path)


def check_readme(bin: Path, tmp_path: Path) -> None:
    """Its blocks run by what is in an environment, and so does its service."""
    where = "import ensemble_sampling; print(ensemble_sampling.__file__)"
    assert run(bin / "python", "-c", where, cwd=tmp_path).startswith(str(bin.parent))
    program = "\n".join(blocks((ROOT / "README.md").read_text(encoding="utf-8")))
    printed = run(bin / "python", "-W", "error", "-c", program, cwd=tmp_path)
    assert "decisions  200" in printed
    assert "regret in the last period" in printed
    assert len(run(bin / "ensemble-sampling").splitlines()) == 5
    command = [str(bin / "ensemble-sampling"), "serve", "shop", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=ENVIRONMENT
    ) as service:
        assert service.stdout is not None
        try:
            listening = re.search(r"http://\S+", service.stdout.readline())
            assert listening is not None
            until_ready(f"{listening[0]}/readyz")
            body = json.dumps({"context": {"age": 40, "hour": 9}}).encode()
            url = f"{listening[0]}/v1/bandits/default/choose"
            with urllib.request.urlopen(url, body, timeout=60) as answer:
                assert json.load(answer)["actions"] == ["tea", "coffee", "cake"]
        finally:
            service.terminate()
    assert service.returncode == 0
