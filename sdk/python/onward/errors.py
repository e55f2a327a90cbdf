"""What goes wrong between this process and a server, told apart by type and code, never by text."""

from __future__ import annotations

import json
from typing import Any

LEASE_LOST = "lease_lost"
"""The code of a server that no longer counts a task as this worker's."""


class OnwardError(Exception):
    """Whatever this package raises by itself."""


class Unreachable(OnwardError):
    """No answer came, or one that is not Onward's. Whether the request was carried out is not known."""


class NotJson(OnwardError):
    """A value that cannot be written as JSON."""


class ExecutionFailed(OnwardError):
    """An execution ended without a result."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        """What kind of error: a name such as `card_declined`, or one of the engine's, such as `cancelled`."""
        self.message = message
        """What happened, for people."""


class Problem(OnwardError):
    """The server answered, and did not do what was asked (RFC 9457)."""

    def __init__(self, status: int, code: str, detail: str, retry_after_ms: int | None = None) -> None:
        super().__init__(f"{detail} ({status} {code})")
        self.status = status
        """The HTTP status."""
        self.code = code
        """What kind of problem; does not change between versions."""
        self.detail = detail
        """What is the matter this time, for people."""
        self.retry_after_ms = retry_after_ms
        """How long the server wants to be left alone, if it says so."""

    @property
    def is_transient(self) -> bool:
        """Whether asking again may help."""
        return self.status == 429 or self.status >= 500


def problem_of(status: int, retry_after: str | None, content: bytes) -> Problem:
    """The problem that an answer tells of. Something between here and the server may have written it."""
    document: Any = None
    try:
        document = json.loads(content)
    except ValueError:
        pass
    if not isinstance(document, dict):
        document = {}
    code = str(document.get("code") or "unknown")
    detail = str(document.get("detail") or document.get("title") or "an answer that is not Onward's")
    return Problem(status, code, detail, retry_after_ms(retry_after))


def retry_after_ms(text: str | None) -> int | None:
    """What `Retry-After` says, if it says seconds."""
    text = (text or "").strip()
    return int(text) * 1_000 if text.isascii() and text.isdigit() else None
