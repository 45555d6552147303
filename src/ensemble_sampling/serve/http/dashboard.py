"""The dashboard: a page that holds no data itself, and asks the service's own API for them."""

from functools import cache
from pathlib import Path

from .errors import Reply
from .operation import Call, Operation

PAGE = "dashboard.html"
KINDS = {
    PAGE: "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
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


@cache
def content(name: str) -> bytes:
    """One of the files of the page."""
    return (Path(__file__).with_name("page") / name).read_bytes()


def _file(path: str, name: str) -> Operation:
    async def file(call: Call) -> Reply:
        return Reply(200, content(name), KINDS[name].encode(), HEADERS)

    return Operation("GET", path, file, None, query=None)


def operations() -> list[Operation]:
    """The page and its files. They need no key: what they show does, and the page asks for it."""
    files = {"/dashboard": PAGE, "/dashboard/": PAGE} | {
        f"/dashboard/{name}": name for name in KINDS if name != PAGE
    }
    return [_file(path, name) for path, name in files.items()]
