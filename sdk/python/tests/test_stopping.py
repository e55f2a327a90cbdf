"""Stopping, without a server: nobody listens where these workers look for one."""

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


def nowhere() -> str:
    """A URL at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


class Stopping(unittest.TestCase):
    def test_a_signal_stops_a_worker(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                program = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, nowhere()],
                    cwd=Path(__file__).parents[1],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                assert program.stdout is not None
                with program:
                    self.assertEqual(program.stdout.readline(), "working\n")
                    # Between this line and `run` a signal would end the program as it ends any other.
                    try:
                        program.wait(0.5)
                    except subprocess.TimeoutExpired:
                        pass
                    program.send_signal(number)
                    self.assertEqual(program.stdout.read(), "stopped\n")
                self.assertEqual(program.returncode, 0)

    def test_a_worker_survives_a_server_that_is_away(self) -> None:
        worker = Worker(nowhere())
        worker.task("nothing")(lambda: None)
        running = threading.Thread(target=worker.run)
        running.start()
        running.join(0.5)
        self.assertTrue(running.is_alive())
        worker.stop()
        running.join(10)
        self.assertFalse(running.is_alive())

    def test_a_worker_runs_once(self) -> None:
        worker = Worker(nowhere())
        worker.task("nothing")(lambda: None)
        with worker:
            pass
        with self.assertRaises(RuntimeError):
            worker.run()

    def test_a_client_says_that_nobody_answers(self) -> None:
        with Client(nowhere()) as client, self.assertRaisesRegex(Unreachable, "does not answer"):
            client.start("order")
