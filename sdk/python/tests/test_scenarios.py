"""The scenarios that every worker client must pass against a server.

They are listed in examples/workers/scenarios.txt.
"""

from __future__ import annotations

import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable

from onward import ExecutionFailed, Failure, Problem, Task, Worker
from onward.outcome import completed, failed

from .scenario import TIMEOUT_MS, ScenarioTestCase, claim_request, unique

TIMEOUT_S = TIMEOUT_MS / 1_000
LIST = Path(__file__).parents[3] / "examples/workers/scenarios.txt"

SHAPES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    9_007_199_254_740_991,
    0.1,
    -2.5e-8,
    "",
    'ünïcödé, 日本語, 🎈, \u0000, " and \\, \n',
    [],
    {},
    [None, [[]], {"": {"é": [1, "2", False]}}],
    {"null": None, "deep": {"a": {"b": {"c": [{"d": None}]}}}},
]


class Values(ScenarioTestCase):
    """Inputs and results."""

    def test_a_task_succeeds(self) -> None:
        worker, name = self.worker(), unique("add")

        @worker.task(name)
        def add(numbers: list[int]) -> int:
            return sum(numbers)

        with worker:
            self.assertEqual(self.relay(name, [1, 2, 3]), 6)

    def test_input_and_result_can_be_any_json(self) -> None:
        worker, name = self.worker(), unique("echo")
        seen: list[Any] = []

        @worker.task(name)
        def echo(value: Any) -> Any:
            seen.append(value)
            return value

        with worker:
            for shape in SHAPES:
                with self.subTest(shape=shape):
                    self.assertEqual(self.relay(name, shape), shape)
        self.assertEqual(seen, SHAPES)

    def test_a_large_value_is_passed_unchanged(self) -> None:
        worker, name = self.worker(), unique("echo")
        worker.task(name)(lambda value: value)
        large = {"text": "é" * 250_000}
        with worker:
            self.assertEqual(self.relay(name, large), large)


class Failures(ScenarioTestCase):
    """How tasks fail, and the error that the workflow receives."""

    def failure(self, worker: Worker, name: str, **options: Any) -> ExecutionFailed:
        """Expects a workflow that calls the task to fail, and returns how."""
        with worker, self.assertRaises(ExecutionFailed) as caught:
            self.relay(name, **options)
        return caught.exception

    def test_a_non_retryable_failure_reaches_the_workflow(self) -> None:
        worker, name = self.worker(), unique("charge")
        attempts: list[int] = []

        @worker.task(name)
        def charge(_order: Any, task: Task) -> None:
            attempts.append(task.attempt)
            raise Failure("the bank declined the card", code="card_declined", retryable=False)

        error = self.failure(worker, name, max_attempts=5)
        self.assertEqual(error.kind, "card_declined")
        self.assertEqual(error.message, "the bank declined the card")
        self.assertEqual(attempts, [1])

    def test_a_retry_has_the_same_promise_and_the_next_attempt_number(self) -> None:
        worker, name = self.worker(), unique("charge")
        seen: list[Task] = []

        @worker.task(name)
        def charge(_order: Any, task: Task) -> int:
            seen.append(task)
            if task.attempt < 3:
                raise Failure("the bank is busy", code="busy")
            return task.attempt

        with worker:
            execution = self.start(name, max_attempts=5, interval_ms=20)
            self.assertEqual(self.result(execution), 3)
        self.assertEqual([task.attempt for task in seen], [1, 2, 3])
        self.assertEqual(len({task.promise for task in seen}), 1)
        self.assertEqual({task.execution for task in seen}, {execution})
        self.assertEqual({task.delivery for task in seen}, {"at-least-once"})

    def test_an_exception_is_a_failure_with_its_type_as_the_code(self) -> None:
        worker, name = self.worker(), unique("look_up")

        @worker.task(name)
        def look_up(_order: Any) -> None:
            raise LookupError("no such order")

        error = self.failure(worker, name)
        self.assertEqual((error.kind, error.message), ("LookupError", "no such order"))

    def test_a_result_that_is_not_json_is_a_non_retryable_failure(self) -> None:
        worker, name = self.worker(), unique("odd")
        attempts: list[int] = []

        @worker.task(name)
        def odd(_input: Any, task: Task) -> Any:
            attempts.append(task.attempt)
            return {1, 2, 3}

        self.assertEqual(self.failure(worker, name, max_attempts=5).kind, "invalid_payload")
        self.assertEqual(attempts, [1])


class Leases(ScenarioTestCase):
    """Claims, heartbeats, expired leases and cancellation."""

    def test_concurrent_tasks_do_not_exceed_the_limit(self) -> None:
        worker = self.worker(concurrency=8)
        lock = threading.Lock()
        running, max_running = 0, 0

        @worker.task
        def greet(name: str) -> str:
            nonlocal running, max_running
            with lock:
                running += 1
                max_running = max(max_running, running)
            time.sleep(0.01)
            with lock:
                running -= 1
            return f"hello {name}"

        names = [f"number {number}" for number in range(200)]
        with worker:
            greetings = self.client.call("greetings", names, timeout_ms=TIMEOUT_MS)
        self.assertEqual(greetings, [f"hello {name}" for name in names])
        self.assertTrue(2 <= max_running <= 8, f"{max_running} tasks at a time")

    def test_heartbeats_keep_the_lease_of_a_long_task(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")

        @worker.task(name)
        def slow(_input: Any, task: Task) -> dict[str, Any]:
            was_cancelled = task.cancelled.wait(3)
            return {"attempt": task.attempt, "cancelled": was_cancelled}

        with worker:
            self.assertEqual(self.relay(name, max_attempts=5), {"attempt": 1, "cancelled": False})

    def test_an_expired_lease_is_reassigned_and_the_late_result_rejected(self) -> None:
        name, tasks = unique("charge"), self.task_client()
        execution = self.start(name, max_attempts=5)
        lost = self.claim(tasks, name, lease_ms=1_000)
        worker = self.worker()

        @worker.task(name)
        def charge(_order: Any, task: Task) -> dict[str, Any]:
            return {"attempt": task.attempt, "promise": task.promise}

        with worker:
            expected = {"attempt": lost.attempt + 1, "promise": lost.promise}
            self.assertEqual(self.result(execution), expected)
        late: list[Callable[[], object]] = [
            lambda: tasks.heartbeat(lost),
            lambda: tasks.report(lost, completed("late")),
            lambda: tasks.report(lost, failed("late", None, retryable=True)),
        ]
        for request in late:
            with self.assertRaises(Problem) as caught:
                request()
            self.assertEqual((caught.exception.status, caught.exception.code), (409, "lease_lost"))

    def test_a_cancelled_execution_cancels_its_task(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")
        started, cancelled = threading.Event(), threading.Event()

        @worker.task(name)
        def slow(_input: Any, task: Task) -> None:
            started.set()
            if task.cancelled.wait(TIMEOUT_S):
                cancelled.set()

        with worker:
            execution = self.start(name)
            self.assertTrue(started.wait(TIMEOUT_S))
            self.client.cancel(execution, "no longer needed")
            self.assertTrue(cancelled.wait(TIMEOUT_S))
            with self.assertRaises(ExecutionFailed) as caught:
                self.result(execution)
        self.assertEqual(caught.exception.kind, "cancelled")

    def test_a_task_that_exceeds_its_timeout_is_cancelled(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")
        cancelled = threading.Event()

        @worker.task(name)
        def slow(_input: Any, task: Task) -> None:
            if task.timeout_ms == 500 and task.cancelled.wait(TIMEOUT_S):
                cancelled.set()

        with worker:
            with self.assertRaises(ExecutionFailed) as caught:
                self.relay(name, timeout_ms=500)
            self.assertTrue(cancelled.wait(TIMEOUT_S))
        self.assertEqual(caught.exception.kind, "timeout")


class Lifecycle(ScenarioTestCase):
    """Starting executions, and stopping workers."""

    def test_an_idempotency_key_starts_one_execution_and_delivers_one_signal(self) -> None:
        key = unique("key")
        execution = self.client.start("listen", "go", key=key)
        self.assertEqual(self.client.start("listen", "go", key=key), execution)
        with self.assertRaises(TimeoutError):
            self.client.result(execution, timeout_ms=200)
        for _ in range(2):
            self.client.signal(execution, "go", {"by": "Grace"}, key="once")
        self.assertEqual(self.result(execution), {"by": "Grace"})

    def test_a_stopping_worker_finishes_its_tasks_in_flight(self) -> None:
        worker, name = self.worker(), unique("slow")
        started, may_finish = threading.Event(), threading.Event()

        @worker.task(name)
        def slow(_input: Any) -> str:
            started.set()
            may_finish.wait(TIMEOUT_S)
            return "done"

        running = threading.Thread(target=worker.run)
        running.start()
        execution = self.start(name)
        self.assertTrue(started.wait(TIMEOUT_S))
        worker.stop()
        running.join(0.5)
        self.assertTrue(running.is_alive())
        may_finish.set()
        running.join(TIMEOUT_S)
        self.assertFalse(running.is_alive())
        # The worker reported the result before `run` returned.
        self.assertEqual(self.client.result(execution, timeout_ms=5_000), "done")

    def test_a_task_unfinished_after_the_grace_period_is_reassigned(self) -> None:
        name = unique("slow")
        impatient, patient = self.worker(lease_ms=1_000, grace_ms=100), self.worker()
        started, cancelled = threading.Event(), threading.Event()

        @impatient.task(name)
        def slow(_input: Any, task: Task) -> str:
            started.set()
            if task.cancelled.wait(TIMEOUT_S):
                cancelled.set()
            return "too late"

        with impatient:
            execution = self.start(name, max_attempts=5)
            self.assertTrue(started.wait(TIMEOUT_S))
        self.assertTrue(cancelled.wait(TIMEOUT_S))
        patient.task(name)(lambda _input, task: task.attempt)
        with patient:
            self.assertEqual(self.result(execution), 2)

    def test_an_invalid_token_stops_the_worker_with_an_error(self) -> None:
        worker = Worker(token="onward_wrong")
        worker.task("nothing")(lambda: None)
        with self.assertRaises(Problem) as caught:
            worker.run()
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthenticated"))
        self.assertIn("claim rejected by", str(caught.exception))


class NextTask(ScenarioTestCase):
    """Chained claims, which are optional in a worker client and therefore not a listed scenario."""

    def test_a_report_returns_the_next_task(self) -> None:
        name, tasks = unique("charge"), self.task_client()
        execution = self.start(name, max_attempts=3)
        task = self.claim(tasks, name, lease_ms=30_000)
        for attempt in (2, 3):
            outcome = failed("busy", None, retryable=True)
            following = tasks.report(task, outcome, claim_request(name, lease_ms=30_000))
            assert following is not None
            self.assertEqual((following.promise, following.attempt), (task.promise, attempt))
            task = following
        self.assertIsNone(tasks.report(task, completed("done")))
        self.assertEqual(self.result(execution), "done")


class ScenarioList(unittest.TestCase):
    """The list of scenarios and the tests agree."""

    def test_every_scenario_has_a_test(self) -> None:
        names = {name for part in (Values, Failures, Leases, Lifecycle) for name in dir(part)}
        tests = {name[5:].replace("_", " ") for name in names if name.startswith("test_")}
        self.assertEqual(tests, set(LIST.read_text().splitlines()))
