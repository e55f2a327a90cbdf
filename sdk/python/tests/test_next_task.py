"""Chained claims: the response to a report contains the next task. Tested on a fake server."""

from __future__ import annotations

import threading
import unittest
from typing import Any

from onward import Failure, Worker

from .fake_server import TIMEOUT_S, FakeServer, count_task

UNAVAILABLE = {"status": 503, "code": "unavailable", "detail": "busy"}


class NextTask(unittest.TestCase):
    """Workers that request the next task with each report."""

    def setUp(self) -> None:
        self.fake = FakeServer(self)

    def worker(self, concurrency: int) -> Worker:
        return Worker(
            self.fake.url, token="t", name="anna", concurrency=concurrency, lease_ms=30_000
        )

    def test_a_report_requests_the_next_task(self) -> None:
        worker = self.worker(1)
        self.fake.respond("claim", {"tasks": [count_task(1)]})
        self.fake.respond("t-1/complete", {"task": "t-1", "next": count_task(2)})

        @worker.task
        def count(number: int) -> int:
            if number == 2:
                raise Failure("enough")
            return number

        worker.task("other")(lambda: None)
        with worker:
            self.assertTrue(self.fake.claim_pending.wait(TIMEOUT_S))
        following = {"worker": "anna", "functions": ["count", "other"], "leaseMs": 30_000}
        complete = {"token": "secret-1", "result": 1, "next": following}
        self.assertEqual(self.fake.bodies("t-1/complete"), [complete])
        error = {"message": "enough", "retryable": True}
        fail = {"token": "secret-2", "error": error, "next": following}
        self.assertEqual(self.fake.bodies("t-2/fail"), [fail])
        # The worker claimed nothing while its slot was occupied.
        requests = ["claim", "t-1/complete", "t-2/fail", "claim"]
        self.assertEqual(self.fake.request_names(), requests)

    def test_a_stopping_worker_releases_claimed_tasks(self) -> None:
        worker = self.worker(1)

        def stop_during_claim() -> dict[str, Any]:
            worker._stopping.set()
            return {"tasks": [count_task(1)]}

        self.fake.respond("claim", stop_during_claim)
        worker.task("count")(lambda number: number)
        with worker:
            self.assertTrue(self.fake.claim_pending.wait(TIMEOUT_S))
        self.assertEqual(self.fake.report_names(), ["t-1/release"])

    def test_the_next_task_runs_in_the_same_slot(self) -> None:
        worker, ended = self.worker(3), threading.Event()
        self.fake.respond("claim", {"tasks": [count_task(0), count_task(100)]})
        for first in (0, 100):
            for number in range(first, first + 9):
                response = {"task": f"t-{number}", "next": count_task(number + 1)}
                self.fake.respond(f"t-{number}/complete", response)
        seen: list[tuple[str, int]] = []
        # Makes both chains run at the same time. Each task also waits for the claim of the third
        # slot.
        barrier = threading.Barrier(2)

        @worker.task
        def count(number: int) -> None:
            seen.append((threading.current_thread().name, number))
            barrier.wait(TIMEOUT_S)
            self.assertTrue(self.fake.claim_pending.wait(TIMEOUT_S))
            if len(seen) == 20:
                ended.set()

        with worker:
            self.assertTrue(ended.wait(TIMEOUT_S))
        slots = {slot: [number for name, number in seen if name == slot] for slot, _ in seen}
        self.assertEqual(sorted(slots.values()), [list(range(10)), list(range(100, 110))])
        # Each claim requested as many tasks as there were free slots.
        self.assertEqual([body["max"] for body in self.fake.bodies("claim")], [3, 1])

    def test_a_retried_report_requests_the_next_task_again(self) -> None:
        worker, ended = self.worker(1), threading.Event()
        self.fake.respond("claim", {"tasks": [count_task(1)]})
        self.fake.respond("t-1/complete", UNAVAILABLE, {"task": "t-1", "next": count_task(2)})

        @worker.task
        def count(number: int) -> None:
            if number == 2:
                ended.set()

        with worker:
            self.assertTrue(ended.wait(TIMEOUT_S))
        fields = [list(body) for body in self.fake.bodies("t-1/complete")]
        self.assertEqual(fields, [["token", "result", "next"]] * 2)


class StoppingWorker(unittest.TestCase):
    """Workers that are stopped while one of their claims is pending.

    The worker aborts that claim, which shows the test that it has started to stop.
    """

    def setUp(self) -> None:
        self.fake = FakeServer(self)
        self.fake.respond("claim", {"tasks": [count_task(1)]})
        self.worker = Worker(self.fake.url, token="t", concurrency=2)
        self.executed: list[int] = []

    def stop(self) -> None:
        """Stops the worker, and waits until it has started to stop."""
        self.assertTrue(self.fake.claim_pending.wait(TIMEOUT_S))
        self.worker.stop()
        self.assertTrue(self.fake.claim_aborted.wait(TIMEOUT_S))

    def stop_and_respond(self, response: dict[str, Any]) -> dict[str, Any]:
        """Stops the worker during a request, then responds to the request."""
        self.stop()
        return response

    def test_a_stopping_worker_requests_no_next_task(self) -> None:
        @self.worker.task
        def count(number: int) -> None:
            self.executed.append(number)
            self.stop()

        self.worker.run()
        self.assertEqual(self.executed, [1])
        complete = {"token": "secret-1", "result": None}
        self.assertEqual(self.fake.bodies("t-1/complete"), [complete])

    def test_a_stopping_worker_releases_a_next_task_that_still_arrives(self) -> None:
        following = {"task": "t-1", "next": count_task(2)}
        self.fake.respond("t-1/complete", lambda: self.stop_and_respond(following))
        self.worker.task("count")(self.executed.append)
        self.worker.run()
        self.assertEqual(self.executed, [1])
        self.assertEqual(self.fake.report_names(), ["t-1/complete", "t-2/release"])
        self.assertEqual(self.fake.bodies("t-2/release"), [{"token": "secret-2"}])

    def test_a_stopping_worker_retries_a_report_without_requesting_a_next_task(self) -> None:
        self.fake.respond("t-1/complete", lambda: self.stop_and_respond(UNAVAILABLE))
        self.worker.task("count")(self.executed.append)
        self.worker.run()
        requested = ["next" in body for body in self.fake.bodies("t-1/complete")]
        self.assertEqual(requested, [True, False])

    def test_a_stopping_worker_finishes_a_next_task_that_is_in_flight(self) -> None:
        self.fake.respond("t-1/complete", {"task": "t-1", "next": count_task(2)})

        @self.worker.task
        def count(number: int) -> None:
            if number == 2:
                self.stop()
            self.executed.append(number)

        self.worker.run()
        self.assertEqual(self.executed, [1, 2])
        complete = {"token": "secret-2", "result": None}
        self.assertEqual(self.fake.bodies("t-2/complete"), [complete])

    def test_a_next_task_is_cancelled_after_the_grace_period(self) -> None:
        worker = Worker(self.fake.url, token="t", concurrency=2, grace_ms=0)
        self.fake.respond("t-1/complete", {"task": "t-1", "next": count_task(2)})
        cancelled = threading.Event()

        @worker.task
        def count(number: int, task: Any) -> None:
            if number == 2:
                worker.stop()
                if task.cancelled.wait(TIMEOUT_S):
                    cancelled.set()

        worker.run()
        self.assertTrue(cancelled.wait(TIMEOUT_S))
