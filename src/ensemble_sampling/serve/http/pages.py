"""What needs no key: the description of the API, and the dashboard, a page that holds no data
itself and asks the service's own API for them."""

from pathlib import Path

from ..types import encoded
from . import api, openapi
from .operation import Call, Operation, Reply

PAGE = "dashboard.html"
KINDS = {
    PAGE: "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "ask.js": "text/javascript; charset=utf-8",
    "manage.js": "text/javascript; charset=utf-8",
    "pays.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


def operations() -> list[Operation]:
    replies = {
        "/openapi.json": Reply(200, encoded(openapi.document(api.OPERATIONS))),
        "/": Reply(307, headers=((b"location", b"/dashboard"),)),
        "/dashboard": _file(PAGE),
        "/dashboard/": _file(PAGE),
        **{f"/dashboard/{name}": _file(name) for name in KINDS if name != PAGE},
    }
    return [_fixed(path, reply) for path, reply in replies.items()]


def _file(name: str) -> Reply:
    content = (Path(__file__).with_name("page") / name).read_bytes()
    return Reply(200, content, KINDS[name].encode(), HEADERS)


def _fixed(path: str, reply: Reply) -> Operation:
    async def run(call: Call) -> Reply:
        return reply

    return Operation("GET", path, run, None, query=None)
