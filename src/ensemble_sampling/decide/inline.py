"""Where decisions are computed: by the thread that asks for them."""

from functools import lru_cache
from typing import Any

import jax


@lru_cache(maxsize=1)
def device() -> Any:
    """A processor of one's own that computes at once; None for JAX's default.

    JAX hands all work to another thread, so that Python can go on meanwhile. A decision waits for
    its numbers, and waking a thread twice takes longer than computing them. What JAX offers
    against it holds for the whole process; a second client holds for what is put on it alone.
    """
    config: Any = jax.config
    if jax.default_backend() != "cpu" or config.jax_default_device is not None:
        return None
    try:
        from jaxlib import xla_client  # not for the public: without it decisions only take longer

        client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=1)
        return client.local_devices()[0]
    except Exception:  # whatever another version of JAX says
        return None


def placed(tree: Any) -> Any:
    """With its arrays there."""
    where = device()
    return tree if where is None else jax.device_put(tree, where)
