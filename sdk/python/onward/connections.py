"""HTTP over connections that are kept: a worker asks often, and opening a connection costs more than asking."""

from __future__ import annotations

import json
import selectors
import socket
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from .access import Access
from .errors import NotJson, Unreachable, problem_of

CONNECT_MS = 10_000
"""How long it may take to reach a server."""
ANSWER_MS = 30_000
"""How long an answer may take, besides what the server was asked to wait."""


class Connections:
    """Connections to one server, for any number of threads."""

    def __init__(self, access: Access) -> None:
        url = urlsplit(access.server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{access.server!r} is not the URL of a server, such as http://127.0.0.1:7400")
        self.server = access.server
        self._kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        self._host, self._port, self._path = url.hostname, url.port, url.path.rstrip("/")
        self._headers = access.headers()
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = False

    def request(self, method: str, path: str, body: Any = None, *, wait_ms: int = 0, answer_ms: int = ANSWER_MS) -> Any:
        """Asks the server, and returns the document that it answers with.

        Raises `Problem` for any other answer, `Unreachable` for none, and `NotJson` if the body cannot be sent.
        """
        content = None if body is None else encode(body)
        try:
            connection = self._take()
            reusable = False
            try:
                connection.sock.settimeout((wait_ms + answer_ms) / 1_000)
                connection.request(method, self._path + path, content, self._headers)
                response = connection.getresponse()
                answer = response.read()
                reusable = not response.will_close
            finally:
                self._leave(connection, reusable)
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self.server} does not answer: {error!r}") from error
        if 200 <= response.status < 300:
            return decode(answer)
        raise problem_of(response.status, response.headers.get("Retry-After"), answer)

    def close(self) -> None:
        """Ends all connections. Whoever waits for an answer gets `Unreachable`."""
        with self._lock:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            for connection in self._busy:
                interrupt(connection.sock)

    def _take(self) -> HTTPConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not has_news(connection.sock):
                    self._busy.add(connection)
                    return connection
                connection.close()
        connection = self._kind(self._host, self._port, timeout=CONNECT_MS / 1_000)
        connection.connect()
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise ConnectionAbortedError("this side has closed its connections")

    def _leave(self, connection: HTTPConnection, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if reusable and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def encode(body: Any) -> bytes:
    """JSON as the server reads it."""
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"it cannot be written as JSON: {error}") from error


def decode(answer: bytes) -> Any:
    """What the server answered. Something between may have answered in its place."""
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Unreachable("the answer is not one of Onward") from error


def has_news(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read: that the server has closed it, as nothing was asked."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def interrupt(sock: socket.socket | None) -> None:
    """Wakes whoever reads from the socket in another thread. TLS would say goodbye first, which only its reader may."""
    try:
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # It is closed already.
