"""Who may call: the key of a request, its scope, its bandit and its rate."""

import ipaddress
from math import ceil

from starlette.types import Scope

from ..service import Service
from .errors import CLOSE, HttpError
from .keys import Key

FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"}  # added by proxies
IGNORED = 10_000  # bytes of a body that some clients send with everything, and nobody reads


def check_origin(scope: Scope, service: Service) -> None:
    """Refuse, whatever the path, a body that nobody would read; and without keys all but this
    machine.

    A page of another site that is open in a browser here must not get in either: neither by a host
    name that resolves to this machine (DNS rebinding), nor by a form.
    """
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    long = b"transfer-encoding" in headers or not length.isdigit() or int(length) > IGNORED
    if long and scope["method"] in ("GET", "HEAD", "DELETE"):
        said = f"a {scope['method']} takes no body here: send it without"
        raise HttpError("too_large", said, headers=CLOSE)
    if not service.open:
        return
    create = "make a key with `ensemble-sampling keys create`"
    if FORWARDED & headers.keys():
        said = f"a proxy handed this on, and without keys only this machine is served: {create}"
        raise HttpError("forbidden", said, 421)
    host = headers.get(b"host", b"").decode("latin-1")
    without_port = host.rpartition(":")[0] if ":" in host else host
    if not is_local(host[1:].partition("]")[0] if host.startswith("[") else without_port):
        said = f"the Host header says {host!r}; without keys only localhost is served: {create}"
        raise HttpError("forbidden", said, 421)
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise HttpError("forbidden", "without keys no other web site's pages are served")


def admit(scope: Scope, service: Service, needs: str | None, bandit: str) -> Key | None:
    """The key of a request that may go on, None where no key is asked for; else `HttpError`.

    needs: the scope its key must have; None: anybody may call.
    bandit: the one it is about, "" for none.
    """
    if needs is None:
        return None
    key = None if service.open else _key(dict(scope["headers"]), service)
    wait = service.rates.wait("" if key is None else key.id)
    if wait:
        after = str(max(1, ceil(wait))).encode()
        said = f"too many requests; come again in {wait:.3f} s"
        raise HttpError("too_many", said, headers=((b"retry-after", after),))
    if key is None:
        return None
    if key.bandit is not None and bandit not in ("", key.bandit):
        raise HttpError("unknown", f"there is no bandit {bandit!r}")
    if not key.allows(needs):
        has = ", ".join(sorted(key.scopes))
        raise HttpError("forbidden", f"this needs the scope {needs!r}; the key has {has}")
    return key


def _key(headers: dict[bytes, bytes], service: Service) -> Key:
    given = headers.get(b"authorization", b"")
    secret = given[7:] if given[:7].lower() == b"bearer " else None
    secret = headers.get(b"ocp-apim-subscription-key") if secret is None else secret
    key = None if secret is None else service.keys.find(secret.strip().decode("latin-1"))
    if key is None:
        what = "no key was given" if secret is None else "the key is not known, or no longer"
        said = f"{what}; expected Authorization: Bearer KEY"
        raise HttpError("unauthorized", said, headers=((b"www-authenticate", b"Bearer"),))
    return key


def is_local(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
