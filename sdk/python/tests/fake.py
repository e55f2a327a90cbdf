"""A server that answers what a test wants, and keeps what it is asked."""

from __future__ import annotations

import json
import threading
import unittest
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Union

LIMIT_S = 60
"""Nothing that a fake is for takes as long."""

Answer = Union["dict[str, Any]", "Callable[[], dict[str, Any]]"]
"""A document, or what gives one when the request has come. A document with a status is a problem."""


def described(number: int, **changes: Any) -> dict[str, Any]:
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


class Fake:
    """The server. A claim for which there is no answer waits until the worker breaks it off."""

    def __init__(self, test: unittest.TestCase) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The requests: the end of the path, and the body."""
        self.claim_waits, self.claim_ended = threading.Event(), threading.Event()
        """Set when a claim waits, and when the worker has broken it off."""
        self._answers: dict[str, deque[Answer]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        test.addCleanup(self._server.server_close)
        test.addCleanup(self._server.shutdown)

    def answer(self, name: str, *answers: Answer) -> None:
        """Answers these, in turn, to requests of this name: `claim`, or `t-1/complete` for example."""
        self._answers[name] = deque(answers)

    def names(self) -> list[str]:
        """What was asked, in order."""
        return [name for name, _ in self.asked]

    def told(self) -> list[str]:
        """The same without claims: those of other slots come at any time."""
        return [name for name in self.names() if name != "claim"]

    def bodies(self, name: str) -> list[dict[str, Any]]:
        """With what it was asked."""
        return [body for asked, body in self.asked if asked == name]

    def _answered(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        name = path[len("/v1/tasks/") :]
        self.asked.append((name, body))
        answers = self._answers.get(name)
        if not answers:
            return None if name == "claim" else {"task": name.partition("/")[0]}
        answer = answers.popleft()
        return answer() if callable(answer) else answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                content = self.rfile.read(size)
                self.close_connection = len(content) < size
                answer = None if self.close_connection else fake._answered(self.path, json.loads(content))
                if answer is None:
                    self._wait()
                    return
                content = json.dumps(answer).encode()
                self.send_response(answer.get("status", 200))
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(content)

            def _wait(self) -> None:
                fake.claim_waits.set()
                self.close_connection = not self.connection.recv(1)
                fake.claim_ended.set()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler
