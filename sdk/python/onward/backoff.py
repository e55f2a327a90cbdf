"""Delays between retries: exponential backoff with jitter, or the server's `Retry-After`."""

from __future__ import annotations

import random
from typing import Callable

from .errors import OnwardError, Problem

INITIAL_BACKOFF_MS = 100
MAX_BACKOFF_MS = 10_000
MAX_RETRY_AFTER_MS = 60_000
MAX_DOUBLINGS = 20


def backoff_ms(failures: int, random_number: Callable[[], float] = random.random) -> int:
    """Exponential backoff after consecutive failures; jitter subtracts up to half of the delay."""
    delay = min(MAX_BACKOFF_MS, INITIAL_BACKOFF_MS << min(failures - 1, MAX_DOUBLINGS))
    return int(delay * (1 - random_number() / 2))


def retry_delay_ms(
    error: OnwardError, failures: int, random_number: Callable[[], float] = random.random
) -> int:
    """The delay before the next retry: `Retry-After` if the server sent one, else the backoff."""
    if isinstance(error, Problem) and error.retry_after_ms is not None:
        return min(error.retry_after_ms, MAX_RETRY_AFTER_MS)
    return backoff_ms(failures, random_number)
