"""Settings for every test: property tests are repeatable, and float64 is asked for by name."""

import jax
import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
settings.load_profile("repeatable")


@pytest.fixture
def float64():
    """Float64 arithmetic for the length of one test."""
    with jax.enable_x64(True):
        yield
