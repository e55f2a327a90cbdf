"""What a function that performs tasks sees: the task, and how to fail."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """An attempt of a task, as this worker has claimed it."""

    id: str
    """The attempt."""
    function: str
    """The name by which the workflow called it."""
    execution: str
    """The execution that called it."""
    promise: str
    """The call: the same for every attempt. Use it as the idempotency key of effects."""
    attempt: int
    """1 for the first."""
    input: Any
    """What it was called with."""
    delivery: str
    """`at-least-once`, or `at-most-once`."""
    timeout_ms: int | None
    """How long the attempt may take, if there is a limit."""
    lease_ms: int
    """For how long it is held without a heartbeat."""
    token: str = field(repr=False)
    """What proves that it is held."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    """Set when nobody wants the result any more: stop, and clean up. What is returned then is dropped."""

    def __str__(self) -> str:
        return f"{self.function}, attempt {self.attempt}"

    @staticmethod
    def of(document: dict[str, Any]) -> Task:
        """The task that the server described."""
        return Task(
            id=document["task"],
            function=document["function"],
            execution=document["execution"],
            promise=document["promise"],
            attempt=document["attempt"],
            input=document.get("input"),
            delivery=document["delivery"],
            timeout_ms=document.get("timeoutMs"),
            lease_ms=document["leaseMs"],
            token=document["token"],
        )


class Failure(Exception):
    """Raised by a function to fail with a code of its own: `Failure("card declined", code="card_declined")`."""

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = True) -> None:
        super().__init__(message)
        self.message = message
        """What happened, for people."""
        self.code = code
        """What kind of failure: the workflow, and its retry policy, go by it."""
        self.retryable = retryable
        """False if trying again cannot help, whatever the retry policy says."""
