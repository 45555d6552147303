"""The bandits there are, and how each is served."""

import asyncio
from dataclasses import asdict

import msgspec

from ...engine import Engine, Refused, Settings
from .. import types
from ..operation import BANDIT, Call, operation


@operation("GET", "/v1/bandits", "read")
async def bandits(call: Call) -> types.Bandits:
    """The bandits there are."""
    if not call.service.ready:
        raise Refused("unavailable", "the service is starting")
    only = None if call.key is None else call.key.bandit
    names = await asyncio.to_thread(call.service.storage.names)
    return types.Bandits([name for name in names if only in (None, name)])


@operation("GET", BANDIT, "read")
async def about(call: Call) -> types.Bandit:
    """A bandit."""
    return await _about(call.name, call.engine)


async def _about(name: str, engine: Engine) -> types.Bandit:
    candidates = await asyncio.to_thread(engine.candidates)
    return types.Bandit(name, types.Configure(**asdict(engine.settings)), candidates)


@operation(
    "PUT",
    BANDIT,
    "admin",
    body=types.Create,
    optional=True,
    creates=True,
    status=201,
    others=(200,),
    refusals=(409,),
    example={"actions": ["red", "green"], "floor": 0.05},
)
async def create(call: Call) -> types.Bandit:
    """Begin a bandit; one that is there already is left as it is."""
    given = call.body or types.Create()
    new = await call.service.create(call.name, given.actions, given.floor)
    if not new and (given.actions is not None or given.floor is not None):
        raise Refused(
            "conflict", f"there is a bandit {call.name!r} already: begin it without a body"
        )
    call.status = 201 if new else 200
    return await _about(call.name, await call.service.find(call.name))


@operation("GET", f"{BANDIT}/settings", "read")
async def settings(call: Call) -> types.Configure:
    """How it is served."""
    return types.Configure(**asdict(call.engine.settings))


@operation(
    "PUT",
    f"{BANDIT}/settings",
    "admin",
    body=types.Configure,
    refusals=(409,),
    example={"wait": 600, "default": 0.0, "floor": 0.05},
)
async def configure(call: Call) -> types.Configure:
    """Serve it otherwise from now on."""
    wanted = Settings(**msgspec.structs.asdict(call.body))
    await asyncio.to_thread(call.engine.configure, wanted)
    return call.body


OPERATIONS = (about, create, settings, configure, bandits)
