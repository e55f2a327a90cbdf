"""How long to wait before asking again."""

from __future__ import annotations

import random
from typing import Callable

from .errors import OnwardError, Problem

FIRST_MS = 100
LONGEST_MS = 10_000
RETRY_AFTER_LONGEST_MS = 60_000
DOUBLINGS_MAX = 20


def backoff_ms(failures: int, entropy: Callable[[], float] = random.random) -> int:
    """The wait after so many failures in a row: doubling, and up to half of it left out so that not all ask at once."""
    whole = min(LONGEST_MS, FIRST_MS << min(failures - 1, DOUBLINGS_MAX))
    return int(whole * (1 - entropy() / 2))


def wait_ms(error: OnwardError, failures: int, entropy: Callable[[], float] = random.random) -> int:
    """The wait after an error: what the server wants, or what backing off gives."""
    if isinstance(error, Problem) and error.retry_after_ms is not None:
        return min(error.retry_after_ms, RETRY_AFTER_LONGEST_MS)
    return backoff_ms(failures, entropy)
