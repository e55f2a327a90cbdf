"""Client for workflows: starts executions, signals and cancels them, and waits for results."""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import quote

from .backoff import retry_delay_ms
from .errors import ExecutionFailed, OnwardError, Problem
from .http_client import HttpClient
from .options import connection_options

log = logging.getLogger("onward")

POLL_MS = 30_000
"""Maximum time that one request waits for a result on the server (long polling)."""


class Client:
    """Starts workflows, signals and cancels them, and waits for their results.

    - `server`: URL of the server; default: `ONWARD_SERVER`, else `http://127.0.0.1:7400`.
    - `token`: bearer token; default: `ONWARD_TOKEN`, else none.
    - `tenant`, `project`, `environment`: default: those of the token.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        project: str | None = None,
        environment: str | None = None,
    ) -> None:
        scope = {"tenant": tenant, "project": project, "environment": environment}
        self._http = HttpClient(connection_options(server, token, scope))

    def start(self, function: str, input: Any = None, *, key: str | None = None) -> str:
        """Starts a workflow and returns the id of its execution.

        With an idempotency key, a repeated call returns the same execution.
        """
        body = {"function": function, "input": input}
        if key is not None:
            body["key"] = key
        execution: str = self._http.request("POST", "/v1/executions", body)["execution"]
        return execution

    def result(self, execution: str, *, timeout_ms: int | None = None) -> Any:
        """Waits for the result of an execution. Retries while the server is unreachable.

        Raises `ExecutionFailed` if the execution failed or was cancelled, and `TimeoutError` if it
        is still running after `timeout_ms` (default: no limit).
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1_000
        failures = 0
        while True:
            remaining_ms = POLL_MS
            if deadline is not None:
                remaining_ms = max(0, int((deadline - time.monotonic()) * 1_000))
            try:
                document = self._poll(execution, min(remaining_ms, POLL_MS))
                failures = 0
            except OnwardError as error:
                failures += 1
                delay_ms = retry_delay_ms(error, failures)
                is_permanent = isinstance(error, Problem) and not error.is_transient
                if is_permanent or (deadline is not None and delay_ms >= remaining_ms):
                    raise
                log.warning(
                    "%s: waiting for the result failed, retrying in %d ms: %s",
                    execution,
                    delay_ms,
                    error,
                )
                time.sleep(delay_ms / 1_000)
                continue
            if "error" in document:
                raise ExecutionFailed(document["error"]["kind"], document["error"]["message"])
            if "result" in document:
                return document["result"]
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(
                    f"execution {execution} is still running after timeout_ms ({timeout_ms} ms)"
                )

    def call(
        self,
        function: str,
        input: Any = None,
        *,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Starts a workflow and waits for its result."""
        return self.result(self.start(function, input, key=key), timeout_ms=timeout_ms)

    def signal(
        self, execution: str, name: str, payload: Any = None, *, key: str | None = None
    ) -> None:
        """Sends a signal to an execution. With a `key`, a repeated signal is delivered once."""
        body = {"name": name, "payload": payload}
        if key is not None:
            body["key"] = key
        self._http.request("POST", f"{execution_path(execution)}/signals", body)

    def cancel(self, execution: str, reason: str) -> None:
        """Requests the cancellation of an execution. It may run its compensations first."""
        self._http.request("POST", f"{execution_path(execution)}/cancel", {"reason": reason})

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def _poll(self, execution: str, wait_ms: int) -> dict[str, Any]:
        path = f"{execution_path(execution)}/result?waitMs={wait_ms}"
        document: dict[str, Any] = self._http.request("GET", path, wait_ms=wait_ms)
        return document


def execution_path(execution: str) -> str:
    """The path of an execution in the API."""
    return f"/v1/executions/{quote(execution, safe='')}"
