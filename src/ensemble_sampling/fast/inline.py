"""Where decisions are computed: small ones by the thread that asks for them."""

import os
from functools import lru_cache
from typing import Any

import jax

STATE_BYTES = 2**20  # bytes of state; beyond, there is enough to do for several threads
THREADS = "PJRT_NPROC"  # how XLA is told how many to have


@lru_cache(maxsize=1)
def device() -> Any:
    """A processor of one's own that computes at once; None for JAX's default.

    JAX hands all work to other threads, so that Python can go on meanwhile. A decision waits for
    its numbers, and waking threads takes longer than computing them. What JAX offers against it
    holds for the whole process; a second client holds for what is put on it alone.
    """
    config: Any = jax.config
    if jax.default_backend() != "cpu" or config.jax_default_device is not None:
        return None
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        from jaxlib import xla_client  # not for the public: without it decisions only take longer

        client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=1)
        return client.local_devices()[0]
    except Exception:  # whatever another version of JAX says
        return None
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def processor(state: Any) -> Any:
    """The device for a state of such arrays: as `primitives.processor`."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return device() if size <= STATE_BYTES else None
