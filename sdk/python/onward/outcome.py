"""How an attempt ended, in the form in which the server is told."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import Any, Callable

from .task import Failure, Task

MESSAGE_CHARS_MAX = 10_000
"""A longer message says no more."""

CODE_CHARS_MAX = 200
"""Nor does a longer code."""

log = logging.getLogger("onward")

Function = Callable[..., Any]
"""A function that performs tasks: of nothing, of the input, or of the input and the task."""
Call = Callable[[Task], Any]
"""A call of such a function."""


@dataclass(frozen=True)
class Outcome:
    """What to tell, and in which words."""

    verb: str
    body: dict[str, Any]

    @property
    def is_failure(self) -> bool:
        """Whether it is told as a failure."""
        return self.verb == "fail"


def completed(result: Any) -> Outcome:
    """The function returned."""
    return Outcome("complete", {"result": result})


def failed(message: str, code: str | None, retryable: bool) -> Outcome:
    """The function did not return, or what it returned cannot be told."""
    # A message can have halves of characters, from the names of files for example, that cannot be sent.
    message = text_of(message)[:MESSAGE_CHARS_MAX].encode(errors="replace").decode()
    error: dict[str, Any] = {"message": message, "retryable": bool(retryable)}
    if code:
        error["code"] = text_of(code)[:CODE_CHARS_MAX].encode(errors="replace").decode()
    return Outcome("fail", {"error": error})


def text_of(value: Any) -> str:
    """What it says of itself, if it can."""
    try:
        return str(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"


def perform(call: Call, task: Task) -> Outcome:
    """Has a task done. Whatever ends it is an outcome: what is not told would look like a lost worker."""
    try:
        return completed(call(task))
    except Failure as failure:
        return failed(failure.message, failure.code, failure.retryable)
    except BaseException as error:
        log.warning("%s failed", task, exc_info=True)
        name = type(error).__name__
        return failed(text_of(error) or name, name, retryable=True)


def call_of(function: Function) -> Call:
    """A call of the function with the input and the task, as far as it takes them.

    A second parameter with a default is the function's own.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [it for it in inspect.signature(function).parameters.values() if it.kind in kinds]
    if not known:
        return lambda task: function()
    if len(known) == 1 or known[1].default is not inspect.Parameter.empty:
        return lambda task: function(task.input)
    return lambda task: function(task.input, task)
