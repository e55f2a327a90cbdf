"""Starting workflows, and waiting for them."""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import quote

from .access import access
from .backoff import wait_ms
from .connections import Connections
from .errors import ExecutionFailed, OnwardError, Problem

log = logging.getLogger("onward")

POLL_MS = 30_000
"""How long the server waits for a result at a time."""


class Client:
    """Starts workflows, tells them things and waits for their results. Arguments are those of `Worker`."""

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
        self._connections = Connections(access(server, token, scope))

    def start(self, function: str, input: Any = None, *, key: str | None = None) -> str:
        """Starts a workflow and returns the id of its execution.

        With a key it can be repeated: the same key and input are the same execution.
        """
        body = {"function": function, "input": input}
        if key is not None:
            body["key"] = key
        execution: str = self._connections.request("POST", "/v1/executions", body)["execution"]
        return execution

    def result(self, execution: str, *, timeout_ms: int | None = None) -> Any:
        """Waits for the result of an execution, also while the server is away.

        Raises `ExecutionFailed` if it ended without one, and `TimeoutError` if it has not ended in time.
        """
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1_000
        failures = 0
        while True:
            left_ms = POLL_MS if until is None else max(0, int((until - time.monotonic()) * 1_000))
            try:
                outcome = self._outcome(execution, min(left_ms, POLL_MS))
                failures = 0
            except OnwardError as error:
                failures += 1
                wait = wait_ms(error, failures)
                if (isinstance(error, Problem) and not error.is_transient) or (until is not None and wait >= left_ms):
                    raise
                log.warning("the result of %s is not known, again in %.1f s: %s", execution, wait / 1_000, error)
                time.sleep(wait / 1_000)
                continue
            if "error" in outcome:
                raise ExecutionFailed(outcome["error"]["kind"], outcome["error"]["message"])
            if "result" in outcome:
                return outcome["result"]
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"{execution} has not ended within {timeout_ms} ms")

    def call(self, function: str, input: Any = None, *, key: str | None = None, timeout_ms: int | None = None) -> Any:
        """Starts a workflow and waits for its result."""
        return self.result(self.start(function, input, key=key), timeout_ms=timeout_ms)

    def signal(self, execution: str, name: str, payload: Any = None, *, key: str | None = None) -> None:
        """Sends a signal to an execution. With a key it can be repeated, and arrives once."""
        body = {"name": name, "payload": payload}
        if key is not None:
            body["key"] = key
        self._connections.request("POST", f"{path(execution)}/signals", body)

    def cancel(self, execution: str, reason: str) -> None:
        """Asks an execution to stop. It may clean up first."""
        self._connections.request("POST", f"{path(execution)}/cancel", {"reason": reason})

    def close(self) -> None:
        """Ends the connections."""
        self._connections.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def _outcome(self, execution: str, poll_ms: int) -> dict[str, Any]:
        asked = f"{path(execution)}/result?waitMs={poll_ms}"
        outcome: dict[str, Any] = self._connections.request("GET", asked, wait_ms=poll_ms)
        return outcome


def path(execution: str) -> str:
    """Where an execution is."""
    return f"/v1/executions/{quote(execution, safe='')}"
