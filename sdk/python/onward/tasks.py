"""The requests of a worker, as the server knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .connections import ANSWER_MS, Connections
from .outcome import Outcome
from .task import Task


@dataclass(frozen=True)
class Wish:
    """What a worker wants to be given."""

    worker: str
    functions: list[str]
    lease_ms: int
    wait_ms: int


class Tasks:
    """Claiming tasks, holding them, and telling how they ended."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def claim(self, wish: Wish, count: int) -> list[Task]:
        """At most so many tasks; none if none came while the server waited."""
        body = {
            "worker": wish.worker,
            "functions": wish.functions,
            "max": count,
            "leaseMs": wish.lease_ms,
            "waitMs": wish.wait_ms,
        }
        answer = self._connections.request("POST", "/v1/tasks/claim", body, wait_ms=wish.wait_ms)
        return [Task.of(document) for document in answer["tasks"]]

    def heartbeat(self, task: Task, answer_ms: int = ANSWER_MS) -> None:
        """Holds a task for another lease."""
        self._tell(task, "heartbeat", {}, answer_ms)

    def tell(self, task: Task, outcome: Outcome) -> None:
        """Tells how a task ended."""
        self._tell(task, outcome.verb, outcome.body, ANSWER_MS)

    def _tell(self, task: Task, verb: str, body: dict[str, Any], answer_ms: int) -> None:
        path = f"/v1/tasks/{quote(task.id, safe='')}/{verb}"
        self._connections.request("POST", path, {"token": task.token, **body}, answer_ms=answer_ms)
