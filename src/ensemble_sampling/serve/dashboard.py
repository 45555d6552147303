"""The dashboard: a page that holds no data itself, and asks the service's own API for them."""

from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PAGE = "dashboard.html"
KINDS = {
    PAGE: "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def content(name: str) -> bytes:
    """One of the files of the page."""
    return (Path(__file__).with_name("page") / name).read_bytes()


def routes(service: Any = None) -> list[Route]:
    """The page and its files. They need no key: what they show does, and the page asks for it."""
    files = {"/dashboard": PAGE, "/dashboard/": PAGE} | {
        f"/dashboard/{name}": name for name in KINDS if name != PAGE
    }
    return [Route(path, _file(name), methods=["GET"]) for path, name in files.items()]


def _file(name: str) -> Any:
    async def answer(request: Request) -> Response:
        return Response(content(name), headers=HEADERS, media_type=KINDS[name])

    return answer
