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

    def next(self) -> dict[str, Any]:
        """The same for one task, if there is one at once."""
        return {"worker": self.worker, "functions": self.functions, "leaseMs": self.lease_ms}


class Tasks:
    """Claiming tasks, holding them, and telling how they ended."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def claim(self, wish: Wish, count: int) -> list[Task]:
        """At most so many tasks; none if none came while the server waited."""
        body = {**wish.next(), "max": count, "waitMs": wish.wait_ms}
        answer = self._connections.request("POST", "/v1/tasks/claim", body, wait_ms=wish.wait_ms)
        return [Task.of(document) for document in answer["tasks"]]

    def heartbeat(self, task: Task, answer_ms: int = ANSWER_MS) -> None:
        """Holds a task for another lease."""
        self._tell(task, "heartbeat", {}, answer_ms)

    def tell(self, task: Task, outcome: Outcome, wish: Wish | None = None) -> Task | None:
        """Tells how a task ended. With a wish, returns the task that is held instead, if there is one."""
        body = outcome.body if wish is None else {**outcome.body, "next": wish.next()}
        document = self._tell(task, outcome.verb, body, ANSWER_MS).get("next")
        return None if document is None else Task.of(document)

    def release(self, task: Task) -> None:
        """Gives a task back that was not begun."""
        self._tell(task, "release", {}, ANSWER_MS)

    def _tell(self, task: Task, verb: str, body: dict[str, Any], answer_ms: int) -> dict[str, Any]:
        path = f"/v1/tasks/{quote(task.id, safe='')}/{verb}"
        body = {"token": task.token, **body}
        answer: dict[str, Any] = self._connections.request("POST", path, body, answer_ms=answer_ms)
        return answer
