"""How the process does that answers: health, readiness and metrics."""

from ...engine import Refused
from .. import types
from ..errors import Reply
from ..metrics import MEDIA
from ..operation import Call, operation


@operation("GET", "/healthz", None)
async def healthy(call: Call) -> types.Health:
    """Whether the process lives."""
    return types.Health("ok")


@operation("GET", "/readyz", None, refusals=(503,))
async def ready(call: Call) -> types.Health:
    """Whether it decides."""
    service = call.service
    if service.ready and not service.away:
        return types.Health("ok", len(service.failed))
    call.status = 503
    return types.Health("away" if service.ready else "starting")


@operation("GET", "/metrics", "read")
async def measures(call: Call) -> Reply:
    """Counts for Prometheus."""
    if call.key is not None and call.key.bandit is not None:
        raise Refused("unknown", "a key for one bandit does not see what all do")
    states = {name: engine.status() for name, engine in call.service.engines.items()}
    return Reply(200, call.metrics.text(states), MEDIA)


OPERATIONS = (healthy, ready, measures)
