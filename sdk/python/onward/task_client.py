"""The worker protocol: claim, heartbeat, complete, fail and release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .http_client import RESPONSE_TIMEOUT_MS, HttpClient
from .outcome import Outcome
from .task import Task


@dataclass(frozen=True)
class ClaimRequest:
    """Request for tasks, held by the server for up to `wait_ms`."""

    worker: str
    functions: list[str]
    lease_ms: int
    wait_ms: int

    def next_task_body(self) -> dict[str, Any]:
        """The request for one task that is available immediately, sent with a report."""
        return {"worker": self.worker, "functions": self.functions, "leaseMs": self.lease_ms}

    def claim_body(self, count: int) -> dict[str, Any]:
        """The request for up to `count` tasks."""
        return {**self.next_task_body(), "max": count, "waitMs": self.wait_ms}


class TaskClient:
    """Sends the requests of the worker protocol."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def claim(self, request: ClaimRequest, count: int) -> list[Task]:
        """Claims up to `count` tasks; returns none if none arrived within `wait_ms`."""
        body = request.claim_body(count)
        response = self._http.request("POST", "/v1/tasks/claim", body, wait_ms=request.wait_ms)
        return [Task.from_document(document) for document in response["tasks"]]

    def heartbeat(self, task: Task, response_timeout_ms: int = RESPONSE_TIMEOUT_MS) -> None:
        """Renews the lease of a task."""
        self._post(task, "heartbeat", {}, response_timeout_ms)

    def report(
        self, task: Task, outcome: Outcome, request: ClaimRequest | None = None
    ) -> Task | None:
        """Reports the outcome of a task. Returns the next task if one was requested and claimed."""
        body = outcome.body
        if request is not None:
            body = {**body, "next": request.next_task_body()}
        document = self._post(task, outcome.operation, body).get("next")
        return None if document is None else Task.from_document(document)

    def release(self, task: Task) -> None:
        """Releases a task that was not started."""
        self._post(task, "release", {})

    def _post(
        self,
        task: Task,
        operation: str,
        body: dict[str, Any],
        response_timeout_ms: int = RESPONSE_TIMEOUT_MS,
    ) -> dict[str, Any]:
        response: dict[str, Any] = self._http.request(
            "POST",
            f"/v1/tasks/{quote(task.id, safe='')}/{operation}",
            {"token": task.token, **body},
            response_timeout_ms=response_timeout_ms,
        )
        return response
