"""A fake server with scripted responses, which records the requests that it receives."""

from __future__ import annotations

import json
import threading
import unittest
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Union

TIMEOUT_S = 60
"""Upper limit of every wait in a test."""

ScriptedResponse = Union["dict[str, Any]", "Callable[[], dict[str, Any]]"]
"""A document, or a function that returns one when the request arrives.

A document with a `status` is sent as a problem.
"""


def count_task(number: int, **changes: Any) -> dict[str, Any]:
    """A task of the function `count` with this number as its input."""
    document = {
        "task": f"t-{number}",
        "token": f"secret-{number}",
        "execution": "e",
        "promise": f"e.root.{number}",
        "function": "count",
        "attempt": 1,
        "input": number,
        "delivery": "at-least-once",
        "leasedUntil": "2026-11-15T12:00:30Z",
        "leaseMs": 30_000,
    }
    return {**document, **changes}


class FakeServer:
    """The server. A claim without a scripted response stays open until the worker aborts it."""

    def __init__(self, test: unittest.TestCase) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """The received requests: the end of the path, and the body."""
        self.claim_pending, self.claim_aborted = threading.Event(), threading.Event()
        """Set when a claim without a response has arrived, and when the worker has aborted it."""
        self._responses: dict[str, deque[ScriptedResponse]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        test.addCleanup(self._server.server_close)
        test.addCleanup(self._server.shutdown)

    def respond(self, name: str, *responses: ScriptedResponse) -> None:
        """Scripts the responses to requests of this name, such as `claim` or `t-1/complete`."""
        self._responses[name] = deque(responses)

    def request_names(self) -> list[str]:
        """The names of the received requests, in order."""
        return [name for name, _ in self.requests]

    def report_names(self) -> list[str]:
        """The same without claims, which other slots send at any time."""
        return [name for name in self.request_names() if name != "claim"]

    def bodies(self, name: str) -> list[dict[str, Any]]:
        """The bodies of the received requests of this name."""
        return [body for other, body in self.requests if other == name]

    def _next_response(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        name = path[len("/v1/tasks/") :]
        self.requests.append((name, body))
        responses = self._responses.get(name)
        if not responses:
            return None if name == "claim" else {"task": name.partition("/")[0]}
        response = responses.popleft()
        return response() if callable(response) else response

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                content = self.rfile.read(size)
                self.close_connection = len(content) < size
                response = None
                if not self.close_connection:
                    response = fake._next_response(self.path, json.loads(content))
                if response is None:
                    self._wait_for_abort()
                    return
                content = json.dumps(response).encode()
                self.send_response(response.get("status", 200))
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(content)

            def _wait_for_abort(self) -> None:
                fake.claim_pending.set()
                self.close_connection = not self.connection.recv(1)
                fake.claim_aborted.set()

            def log_message(self, format: str, *args: Any) -> None:
                """Discards the access log."""

        return Handler
