"""How much a request may ask for, to the last one that is let through."""

import asyncio

import pytest

from ensemble_sampling.serve.http.limits import Limits, Rates, TooLarge, read_body
from ensemble_sampling.serve.types import Settings


def body(size, told, limits):
    async def receive():
        return {"type": "http.request", "body": bytes(size)}

    headers = [] if told is None else [(b"content-length", str(told).encode())]
    return asyncio.run(read_body({"headers": headers}, receive, limits))


def test_a_body_may_be_as_large_as_the_limit():
    limits = Limits(body=10)
    assert len(body(10, 10, limits)) == len(body(10, None, limits)) == 10
    for size, told in ((11, 11), (11, None), (0, 11)):
        with pytest.raises(TooLarge):
            body(size, told, limits)


def test_what_is_nested_counts():
    limits = Limits(features=4, actions=2)
    limits.offer([{"a": 1, "b": [1, 2]}], {"c": {"d": 1, "e": 2}, "f": 3})
    with pytest.raises(TooLarge, match="5 features"):
        limits.offer([{"a": 1, "b": [1, 2, 3]}], None)
    with pytest.raises(TooLarge, match="3 actions"):
        limits.offer({"a": 1, "b": 2, "c": 3}, None)


def test_a_rate_is_shared_by_processes():
    rates = Rates(3.0, processes=2)
    assert rates.wait("a") == 0.0
    assert 0.0 < rates.wait("a") <= 1 / 1.5
    assert rates.wait("b") == 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"floor": 1.5}, {"floor": -0.1}, {"wait": -1.0}, {"aggregation": "mean"}, {"mode": ""}],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)
