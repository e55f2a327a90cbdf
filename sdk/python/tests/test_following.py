"""Tasks that come with the answer to how another ended, from a server that answers what a test wants."""

from __future__ import annotations

import threading
import unittest
from typing import Any

from onward import Failure, Worker

from .fake import LIMIT_S, Fake, described

BUSY = {"status": 503, "code": "unavailable", "detail": "busy"}


class Following(unittest.TestCase):
    def setUp(self) -> None:
        self.fake = Fake(self)

    def worker(self, concurrency: int) -> Worker:
        return Worker(self.fake.url, token="t", name="anna", concurrency=concurrency, lease_ms=30_000)

    def test_a_report_asks_for_the_next_task(self) -> None:
        worker = self.worker(1)
        self.fake.answer("claim", {"tasks": [described(1)]})
        self.fake.answer("t-1/complete", {"task": "t-1", "next": described(2)})

        @worker.task
        def count(number: int) -> int:
            if number == 2:
                raise Failure("enough")
            return number

        worker.task("other")(lambda: None)
        with worker:
            self.assertTrue(self.fake.claim_waits.wait(LIMIT_S))
        following = {"worker": "anna", "functions": ["count", "other"], "leaseMs": 30_000}
        self.assertEqual(self.fake.bodies("t-1/complete"), [{"token": "secret-1", "result": 1, "next": following}])
        error = {"message": "enough", "retryable": True}
        self.assertEqual(self.fake.bodies("t-2/fail"), [{"token": "secret-2", "error": error, "next": following}])
        # Nothing was claimed while the slot was busy.
        self.assertEqual(self.fake.names(), ["claim", "t-1/complete", "t-2/fail", "claim"])

    def test_a_task_that_is_claimed_by_a_worker_that_stops_is_given_back(self) -> None:
        worker = self.worker(1)

        def stopped_meanwhile() -> dict[str, Any]:
            worker._stopping.set()
            return {"tasks": [described(1)]}

        self.fake.answer("claim", stopped_meanwhile)
        worker.task("count")(lambda number: number)
        with worker:
            self.assertTrue(self.fake.claim_waits.wait(LIMIT_S))
        self.assertEqual(self.fake.told(), ["t-1/release"])

    def test_a_task_that_comes_with_the_answer_stays_in_the_slot(self) -> None:
        worker, ended = self.worker(3), threading.Event()
        self.fake.answer("claim", {"tasks": [described(0), described(100)]})
        for first in (0, 100):
            for number in range(first, first + 9):
                self.fake.answer(f"t-{number}/complete", {"task": f"t-{number}", "next": described(number + 1)})
        seen: list[tuple[str, int]] = []
        # Each waits for the other, so both are under way at a time; and for the claim for the third slot.
        turns = threading.Barrier(2)

        @worker.task
        def count(number: int) -> None:
            seen.append((threading.current_thread().name, number))
            turns.wait(LIMIT_S)
            self.assertTrue(self.fake.claim_waits.wait(LIMIT_S))
            if len(seen) == 20:
                ended.set()

        with worker:
            self.assertTrue(ended.wait(LIMIT_S))
        slots = {slot: [number for name, number in seen if name == slot] for slot, _ in seen}
        self.assertEqual(sorted(slots.values()), [list(range(10)), list(range(100, 110))])
        # Only what was free was asked for.
        self.assertEqual([body["max"] for body in self.fake.bodies("claim")], [3, 1])

    def test_a_report_that_is_repeated_asks_again(self) -> None:
        worker, ended = self.worker(1), threading.Event()
        self.fake.answer("claim", {"tasks": [described(1)]})
        self.fake.answer("t-1/complete", BUSY, {"task": "t-1", "next": described(2)})

        @worker.task
        def count(number: int) -> None:
            if number == 2:
                ended.set()

        with worker:
            self.assertTrue(ended.wait(LIMIT_S))
        self.assertEqual([list(body) for body in self.fake.bodies("t-1/complete")], [["token", "result", "next"]] * 2)


class Stopping(unittest.TestCase):
    """A worker that is stopped while a claim of it waits: when that is broken off, the worker knows."""

    def setUp(self) -> None:
        self.fake = Fake(self)
        self.fake.answer("claim", {"tasks": [described(1)]})
        self.worker = Worker(self.fake.url, token="t", concurrency=2)
        self.performed: list[int] = []

    def stop(self) -> None:
        """Stops the worker, and returns when it knows."""
        self.assertTrue(self.fake.claim_waits.wait(LIMIT_S))
        self.worker.stop()
        self.assertTrue(self.fake.claim_ended.wait(LIMIT_S))

    def stop_and_answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Answers a request during which the worker was stopped."""
        self.stop()
        return answer

    def test_a_worker_that_stops_asks_for_nothing(self) -> None:
        @self.worker.task
        def count(number: int) -> None:
            self.performed.append(number)
            self.stop()

        self.worker.run()
        self.assertEqual(self.performed, [1])
        self.assertEqual(self.fake.bodies("t-1/complete"), [{"token": "secret-1", "result": None}])

    def test_a_task_that_comes_when_a_worker_stops_is_given_back(self) -> None:
        following = {"task": "t-1", "next": described(2)}
        self.fake.answer("t-1/complete", lambda: self.stop_and_answer(following))
        self.worker.task("count")(self.performed.append)
        self.worker.run()
        self.assertEqual(self.performed, [1])
        self.assertEqual(self.fake.told(), ["t-1/complete", "t-2/release"])
        self.assertEqual(self.fake.bodies("t-2/release"), [{"token": "secret-2"}])

    def test_a_report_that_is_repeated_when_a_worker_stops_asks_for_nothing(self) -> None:
        self.fake.answer("t-1/complete", lambda: self.stop_and_answer(BUSY))
        self.worker.task("count")(self.performed.append)
        self.worker.run()
        asked = ["next" in body for body in self.fake.bodies("t-1/complete")]
        self.assertEqual(asked, [True, False])

    def test_a_task_that_has_followed_is_finished_by_a_worker_that_stops(self) -> None:
        self.fake.answer("t-1/complete", {"task": "t-1", "next": described(2)})

        @self.worker.task
        def count(number: int) -> None:
            if number == 2:
                self.stop()
            self.performed.append(number)

        self.worker.run()
        self.assertEqual(self.performed, [1, 2])
        self.assertEqual(self.fake.bodies("t-2/complete"), [{"token": "secret-2", "result": None}])

    def test_a_task_that_has_followed_is_left_when_patience_is_over(self) -> None:
        hasty = Worker(self.fake.url, token="t", concurrency=2, grace_ms=0)
        self.fake.answer("t-1/complete", {"task": "t-1", "next": described(2)})
        told = threading.Event()

        @hasty.task
        def count(number: int, task: Any) -> None:
            if number == 2:
                hasty.stop()
                if task.cancelled.wait(LIMIT_S):
                    told.set()

        hasty.run()
        self.assertTrue(told.wait(LIMIT_S))
