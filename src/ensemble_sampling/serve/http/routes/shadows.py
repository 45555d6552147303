"""Shadows: candidates that watch what a bandit decides, and may take charge of it."""

import asyncio

from ...engine import Refused
from .. import types
from ..operation import BANDIT, Call, operation


@operation("GET", f"{BANDIT}/shadows", "read")
async def shadows(call: Call) -> types.Shadows:
    """Candidates, and how those do that watch."""
    found = await asyncio.to_thread(call.engine.summary)
    names = await asyncio.to_thread(call.engine.candidates)
    return types.Shadows(names, list(found.get("shadows", ())))


@operation(
    "POST",
    f"{BANDIT}/shadows",
    "admin",
    body=types.Shadow,
    refusals=(409,),
    example={"name": "bold"},
)
async def shadow(call: Call) -> None:
    """Let a candidate watch from now on."""
    names = await asyncio.to_thread(call.engine.candidates)
    if call.body.name not in names:
        raise Refused("unknown", f"there is no candidate {call.body.name!r}; there are {names}")
    await asyncio.to_thread(call.engine.shadow, call.body.name)


@operation("DELETE", BANDIT + "/shadows/{shadow}", "admin", refusals=(409,))
async def dismiss(call: Call) -> None:
    """Let a shadow go; what it said is kept."""
    await asyncio.to_thread(call.engine.dismiss, await _shadow(call))


@operation("POST", BANDIT + "/shadows/{shadow}/promote", "admin", refusals=(409,))
async def promote(call: Call) -> None:
    """Put a shadow in charge."""
    await asyncio.to_thread(call.engine.promote, await _shadow(call))


async def _shadow(call: Call) -> str:
    """The name of the shadow in the path, if there is such a one."""
    found, name = await asyncio.to_thread(call.engine.summary), call.params["shadow"]
    names = [each["name"] for each in found.get("shadows", ())]
    if name not in names:
        raise Refused("unknown", f"there is no shadow {name!r}; there are {names}")
    return name


OPERATIONS = (shadows, shadow, dismiss, promote)
