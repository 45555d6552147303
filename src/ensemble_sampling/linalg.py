"""Factorisations that may be mapped over many matrices in programs that run side by side.

On a CPU they are LAPACK's. For a batch of matrices jaxlib 0.10 shares its calls out to XLA's
threads and waits for them on one of those threads: as many such calls at a time as there are
threads, from one program or several, wait for ever. For one matrix nothing is shared out. So on a
CPU the matrices of a batch are taken one after another; chunks keep the cores busy all the same.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

BATCH = re.compile(r"@lapack_.*: \(tensor<(?:\d+x){3}")


def in_batches(lowered: Any) -> bool:
    """Whether a program calls LAPACK for a batch all the same, as code of users may."""
    return BATCH.search(lowered.as_text()) is not None


def _one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function`, which `vmap` turns into a loop where LAPACK computes it."""
    in_turn = jax.custom_batching.sequential_vmap(function)

    @wraps(function)
    def run(*arrays: Any) -> Array:
        chosen = in_turn if jax.default_backend() == "cpu" else function
        return chosen(*map(jnp.asarray, arrays))

    return run


@_one_by_one
def cholesky(matrix: Array) -> Array:
    """The lower triangular L with L L' = matrix."""
    return jnp.linalg.cholesky(matrix)


@_one_by_one
def triangle(rows: Array) -> Array:
    """The upper triangular R with R'R = rows' rows."""
    return jnp.linalg.qr(rows, mode="r")


@_one_by_one
def solve(matrix: Array, right: Array) -> Array:
    """matrix^-1 right."""
    return jnp.linalg.solve(matrix, right)


@_one_by_one
def solve_lower(root: Array, right: Array) -> Array:
    """root^-1 right for a lower triangular root."""
    return jax.scipy.linalg.solve_triangular(root, right, lower=True)


@_one_by_one
def solve_upper(root: Array, right: Array) -> Array:
    """root^-1 right for an upper triangular root."""
    return jax.scipy.linalg.solve_triangular(root, right, lower=False)
