"""Runs the function of a task and builds the report of its outcome."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import Any, Callable

from .task import Failure, Task

MAX_MESSAGE_CHARS = 10_000
"""Longer failure messages are truncated."""

MAX_CODE_CHARS = 200
"""Longer failure codes are truncated."""

log = logging.getLogger("onward")

TaskFunction = Callable[..., Any]
"""A function that executes tasks: without parameters, of the input, or of input and task."""
TaskHandler = Callable[[Task], Any]
"""A task function with its arguments bound to the task."""


@dataclass(frozen=True)
class Outcome:
    """The operation that reports the outcome of an attempt, and its request body."""

    operation: str
    body: dict[str, Any]

    @property
    def is_failure(self) -> bool:
        """Whether the attempt failed."""
        return self.operation == "fail"


def completed(result: Any) -> Outcome:
    """The outcome of a function that returned."""
    return Outcome("complete", {"result": result})


def failed(message: str, code: str | None, retryable: bool) -> Outcome:
    """The outcome of a function that failed, or whose result cannot be reported."""
    # A message can contain lone surrogates, from file names for example, which UTF-8 cannot encode.
    message = to_text(message)[:MAX_MESSAGE_CHARS].encode(errors="replace").decode()
    error: dict[str, Any] = {"message": message, "retryable": bool(retryable)}
    if code:
        error["code"] = to_text(code)[:MAX_CODE_CHARS].encode(errors="replace").decode()
    return Outcome("fail", {"error": error})


def to_text(value: Any) -> str:
    """Converts a value to text, also if its `__str__` raises."""
    try:
        return str(value)
    except Exception:
        return f"{type(value).__name__} without a text representation"


def run_task(handler: TaskHandler, task: Task) -> Outcome:
    """Runs the handler of a task.

    Everything that it raises becomes a failure: without a report, the server would treat the worker
    as lost.
    """
    try:
        return completed(handler(task))
    except Failure as failure:
        return failed(failure.message, failure.code, failure.retryable)
    except BaseException as error:
        log.warning("%s: failed", task, exc_info=True)
        name = type(error).__name__
        return failed(to_text(error) or name, name, retryable=True)


def bind_arguments(function: TaskFunction) -> TaskHandler:
    """Binds the parameters of a function to the input and the task, as far as it has them.

    A second parameter with a default is not bound.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    positional = [it for it in parameters if it.kind in kinds]
    if not positional:
        return lambda task: function()
    if len(positional) == 1 or positional[1].default is not inspect.Parameter.empty:
        return lambda task: function(task.input)
    return lambda task: function(task.input, task)
