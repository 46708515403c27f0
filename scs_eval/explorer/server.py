"""The explorer as a page of this machine, from Python's own http.server.

One reader, one page and one question ("what does this view look like?") need no framework: Panel and Gradio bring
dozens of packages, file routes and ways to share, Starlette a server besides, all of which would have to be shut again.
Here nothing is served but the page and the answers; both are below a token that only the printed address has, on
loopback, and to requests that name loopback as their host (so that no other site's name can be pointed here).
"""

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from scs_eval.errors import InputError
from scs_eval.explorer.view import EPS, PREDICTED, TRUE, captions, check_choices, look, offered_attacks
from scs_eval.explorer.widget import png_uri
from scs_eval.report.html.parts import as_json
from scs_eval.report.html.sheets import picture_sheet, tile_side

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.data import ImageData

LOOPBACK = "127.0.0.1"
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'nonce-{}'; connect-src 'self'"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class App:
    """The models and images of an explorer, and its two answers: the page, and a view."""

    def __init__(
        self, models: "Mapping[str, nn.Module]", data: "Mapping[str, ImageData]", *, methods: Sequence[str]
    ) -> None:
        """data: for each model, the same images at its size."""
        self.first = next(iter(data.values()))
        check_choices(models, self.first, methods)
        self.models, self.data, self.methods = dict(models), data, tuple(methods)
        self.attacks = offered_attacks()
        self._lock = threading.Lock()  # one view at a time: hooks and modes of a model are its own

    def warm_up(self) -> None:
        """Every method and an attack once: torch and captum load parts of themselves when first asked."""
        for method in self.methods:
            self.view({"model": list(self.models), "method": [method], "eps": [str(EPS[1])]})

    @cached_property
    def options(self) -> dict[str, Any]:
        """What there is to choose, with a sheet of all images."""
        images = self.first.images[:].numpy()
        sheet = picture_sheet(images, side=min(64, tile_side(max(images.shape[2:]), len(images))))
        return {
            "images": captions(self.first), "sheet": asdict(sheet), "models": list(self.models),
            "methods": self.methods, "classes": [PREDICTED, TRUE, *self.first.classes], "attacks": self.attacks,
            "eps": EPS,
        }  # fmt: skip

    def page(self, nonce: str) -> bytes:
        """The page with its choices inside."""
        text = (files("scs_eval.explorer") / "explorer.html").read_text(encoding="utf-8")
        return text.replace("{{nonce}}", nonce).replace("{{options}}", as_json(self.options)).encode()

    def view(self, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Every chosen model's pictures and sentences, or why it has none."""
        choice = self._choice(asked)
        answers, start = [], time.perf_counter()
        with self._lock:
            for name in choice.pop("models"):
                try:
                    view = look(name, self.models[name], self.data[name], **choice)
                    pictures = [[title, png_uri(picture)] for title, picture in view.pictures.items()]
                    answers.append({"model": name, "pictures": pictures, "sentences": view.sentences})
                except InputError as error:
                    answers.append({"model": name, "pictures": [], "sentences": [str(error)]})
        return {"answers": answers, "seconds": time.perf_counter() - start}

    def _choice(self, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The request, checked: whoever has the token still chooses only of what is offered."""
        index, method = asked.get("image", ["0"])[0], asked.get("method", self.methods[:1])[0]
        names, class_, eps = asked.get("model", ()), asked.get("class", [PREDICTED])[0], asked.get("eps", ["0"])[0]
        if not index.isdecimal() or int(index) >= len(self.first):
            raise InputError(f"expected an image from 0 to {len(self.first) - 1}, got {index!r}")
        attack = asked.get("attack", self.attacks[:1])[0]
        for noun, name, offered in (("a method", method, self.methods), ("an attack", attack, self.attacks)):
            if name not in offered:
                raise InputError(f"expected {noun} of {', '.join(offered)}, got {name!r}")
        if unknown := [name for name in names if name not in self.models]:
            raise InputError(f"expected models of {', '.join(self.models)}, got {unknown[0]!r}")
        try:
            radius = float(eps)
        except ValueError:
            radius = -1.0
        if not 0 <= radius <= 1:
            raise InputError(f"expected ε from 0 to 1, got {eps!r}")
        return {
            "models": list(dict.fromkeys(names)), "position": int(index), "method": method, "class_": class_,
            "eps": radius, "attack_name": attack,
        }  # fmt: skip


def make_server(app: App, *, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """A server on loopback, not yet serving, and the address to open; port 0 is any that is free."""
    token = secrets.token_urlsafe(24)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "scs-eval", ""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            _, given, *rest = (*parts.path.split("/"), "", "")
            hosts = {f"{name}:{self.server.server_address[1]}" for name in (LOOPBACK, "localhost")}  # type: ignore[index]
            what = "/".join(rest).rstrip("/")
            if self.headers.get("Host") not in hosts or not compare_digest(given.encode(), token.encode()):
                self._send(HTTPStatus.FORBIDDEN, b"", "text/plain")
            elif what == "":
                nonce = secrets.token_urlsafe(16)
                self._send(HTTPStatus.OK, app.page(nonce), "text/html; charset=utf-8", nonce)
            elif what == "view":
                self._view(parse_qs(parts.query))
            else:
                self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")

        def _view(self, asked: dict[str, list[str]]) -> None:
            try:
                status, answer = HTTPStatus.OK, app.view(asked)
            except InputError as error:
                status, answer = HTTPStatus.BAD_REQUEST, {"error": str(error)}
            self._send(status, json.dumps(answer).encode(), "application/json")

        def _send(self, status: HTTPStatus, body: bytes, kind: str, nonce: str = "") -> None:
            self.send_response(status)
            headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
            for name, value in {**headers, "Content-Security-Policy": POLICY.format(nonce)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent: the address of a request holds the token."""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server, f"http://{LOOPBACK}:{server.server_address[1]}/{token}/"
