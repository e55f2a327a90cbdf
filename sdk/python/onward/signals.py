"""Stopping when the process is asked to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at the first SIGINT or SIGTERM; the second does what it would have done anyway.

    Only the main thread may do this. In others, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            # None is a handler that Python does not know; it cannot be put back.
            if handler is not None:
                signal.signal(number, handler)

    def handle(_number: int, _frame: Any) -> None:
        restore()
        stop()

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
