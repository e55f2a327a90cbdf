"""Errors of this package. Callers distinguish them by type and `code`, never by message text."""

from __future__ import annotations

import json
from typing import Any

LEASE_LOST = "lease_lost"
"""The problem code for a claim token that is no longer valid."""


class OnwardError(Exception):
    """Base class of the errors that this package raises."""


class Unreachable(OnwardError):
    """The server sent no response, or the response is not JSON.

    It is unknown whether the server executed the request.
    """


class NotJson(OnwardError):
    """A value cannot be encoded as JSON."""


class ExecutionFailed(OnwardError):
    """An execution failed or was cancelled."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        """The error kind: a code such as `card_declined`, or one of the engine: `cancelled`."""
        self.message = message
        """Human-readable description of the failure."""


class Problem(OnwardError):
    """The server rejected the request with a problem document (RFC 9457)."""

    def __init__(
        self, status: int, code: str, detail: str, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(f"{detail} ({status} {code})")
        self.status = status
        """The HTTP status."""
        self.code = code
        """The problem code, which is stable between versions."""
        self.detail = detail
        """Human-readable description of this occurrence."""
        self.retry_after_ms = retry_after_ms
        """The delay that the server requested with `Retry-After`, if any."""

    @property
    def is_transient(self) -> bool:
        """Whether a retry of the same request may succeed."""
        return self.status == 429 or self.status >= 500


def is_lease_lost(error: OnwardError) -> bool:
    """Whether the server rejected a request because the lease of the task is lost."""
    return isinstance(error, Problem) and error.code == LEASE_LOST


def parse_problem(status: int, retry_after: str | None, content: bytes) -> Problem:
    """Parses an error response. A proxy may have sent it, so it need not be a problem document."""
    document: Any = None
    try:
        document = json.loads(content)
    except ValueError:
        pass
    if not isinstance(document, dict):
        document = {}
    code = str(document.get("code") or "unknown")
    detail = document.get("detail") or document.get("title")
    detail = str(detail or "the response is not a problem document")
    return Problem(status, code, detail, parse_retry_after_ms(retry_after))


def parse_retry_after_ms(text: str | None) -> int | None:
    """Parses `Retry-After` in seconds; dates are ignored."""
    text = (text or "").strip()
    return int(text) * 1_000 if text.isascii() and text.isdigit() else None
