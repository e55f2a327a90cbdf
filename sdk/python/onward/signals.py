"""Graceful shutdown on SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at the first SIGINT or SIGTERM. A second one has its previous effect.

    Only the main thread can install signal handlers. In other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in previous.items():
            # None is a handler that was not installed by Python: it cannot be restored.
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
