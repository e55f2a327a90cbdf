"""HTTP client with a connection pool, because a worker sends many small requests."""

from __future__ import annotations

import json
import selectors
import socket
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from .errors import NotJson, Unreachable, parse_problem
from .options import DEFAULT_SERVER, ConnectionOptions

CONNECT_TIMEOUT_MS = 10_000
"""How long connecting to the server may take."""
RESPONSE_TIMEOUT_MS = 30_000
"""Default time that a response may take, in addition to the wait on the server."""


class HttpClient:
    """Sends JSON requests to one server, from any number of threads."""

    def __init__(self, options: ConnectionOptions) -> None:
        url = urlsplit(options.server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(
                f"invalid server URL {options.server!r}: "
                f"set the argument server or ONWARD_SERVER to a URL such as {DEFAULT_SERVER}"
            )
        self.server = options.server
        self._connection_type = HTTPSConnection if url.scheme == "https" else HTTPConnection
        self._host, self._port, self._path = url.hostname, url.port, url.path.rstrip("/")
        self._headers = options.headers()
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        wait_ms: int = 0,
        response_timeout_ms: int = RESPONSE_TIMEOUT_MS,
    ) -> Any:
        """Sends a request and returns the JSON of the response.

        The server may hold the request for `wait_ms` (long polling); the response may take
        `response_timeout_ms` in addition.

        Raises `Problem` for an error response, `Unreachable` for none or for one that is not JSON,
        and `NotJson` if the body cannot be encoded.
        """
        content = None if body is None else encode(body)
        try:
            connection = self._acquire()
            is_reusable = False
            try:
                connection.sock.settimeout((wait_ms + response_timeout_ms) / 1_000)
                connection.request(method, self._path + path, content, self._headers)
                response = connection.getresponse()
                response_body = response.read()
                is_reusable = not response.will_close
            finally:
                self._release(connection, is_reusable)
        except (OSError, HTTPException) as error:
            raise Unreachable(f"no response from {self.server}: {error!r}") from error
        if 200 <= response.status < 300:
            return decode(response_body)
        retry_after = response.headers.get("Retry-After")
        raise parse_problem(response.status, retry_after, response_body)

    def close(self) -> None:
        """Closes all connections. Requests in flight fail with `Unreachable`."""
        with self._lock:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            for connection in self._busy:
                interrupt(connection.sock)

    def _acquire(self) -> HTTPConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not is_readable(connection.sock):
                    self._busy.add(connection)
                    return connection
                connection.close()
        connection = self._connection_type(
            self._host, self._port, timeout=CONNECT_TIMEOUT_MS / 1_000
        )
        connection.connect()
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise ConnectionAbortedError("the client is closed")

    def _release(self, connection: HTTPConnection, is_reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_reusable and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def encode(body: Any) -> bytes:
    """Encodes a request body as JSON."""
    try:
        text = json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"the value cannot be encoded as JSON: {error}") from error


def decode(content: bytes) -> Any:
    """Decodes a response body. A proxy may have sent it, so it need not be JSON."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise Unreachable("the response is not JSON") from error


def is_readable(sock: socket.socket) -> bool:
    """Whether an idle connection is readable, which means that the server has closed it."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def interrupt(sock: socket.socket | None) -> None:
    """Interrupts the thread that reads from the socket.

    Shuts down the TCP connection only: the closing message of TLS may be sent by the reader alone.
    """
    try:
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # The connection is already closed.
