"""Shutdown and connection failures, tested without a server."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from onward import Client, Unreachable, Worker

PROGRAM = """
import sys
from onward import Worker
worker = Worker(sys.argv[1])
worker.task("nothing")(lambda: None)
print("working", flush=True)
worker.run()
print("stopped", flush=True)
"""


def unused_url() -> str:
    """A URL on which no server listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


class Shutdown(unittest.TestCase):
    def test_a_signal_stops_a_worker(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                program = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, unused_url()],
                    cwd=Path(__file__).parents[1],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                assert program.stdout is not None
                with program:
                    self.assertEqual(program.stdout.readline(), "working\n")
                    # `run` installs its signal handlers after this line: before that, a signal
                    # would kill the program.
                    try:
                        program.wait(0.5)
                    except subprocess.TimeoutExpired:
                        pass
                    program.send_signal(number)
                    self.assertEqual(program.stdout.read(), "stopped\n")
                self.assertEqual(program.returncode, 0)

    def test_a_worker_retries_while_the_server_is_unreachable(self) -> None:
        worker = Worker(unused_url())
        worker.task("nothing")(lambda: None)
        running = threading.Thread(target=worker.run)
        running.start()
        running.join(0.5)
        self.assertTrue(running.is_alive())
        worker.stop()
        running.join(10)
        self.assertFalse(running.is_alive())

    def test_a_worker_cannot_run_twice(self) -> None:
        worker = Worker(unused_url())
        worker.task("nothing")(lambda: None)
        with worker:
            pass
        with self.assertRaises(RuntimeError):
            worker.run()

    def test_a_client_reports_an_unreachable_server(self) -> None:
        client = Client(unused_url())
        with client, self.assertRaisesRegex(Unreachable, "no response from"):
            client.start("order")
