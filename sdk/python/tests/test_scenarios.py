"""What every client for workers has to show, against a server: the list is examples/workers/scenarios.txt."""

from __future__ import annotations

import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable

from onward import ExecutionFailed, Failure, Problem, Task, Worker
from onward.outcome import completed, failed

from .against import LIMIT_MS, Against, unique, wish

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


class Values(Against):
    """What goes in, and what comes out."""

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

    def test_a_large_value_goes_through(self) -> None:
        worker, name = self.worker(), unique("echo")
        worker.task(name)(lambda value: value)
        large = {"text": "é" * 250_000}
        with worker:
            self.assertEqual(self.relay(name, large), large)


class Failures(Against):
    """How tasks fail, and what workflows see of it."""

    def failure(self, worker: Worker, name: str, **how: Any) -> ExecutionFailed:
        """What a workflow that calls the task fails with."""
        with worker, self.assertRaises(ExecutionFailed) as caught:
            self.relay(name, **how)
        return caught.exception

    def test_a_final_failure_reaches_the_workflow(self) -> None:
        worker, name = self.worker(), unique("charge")
        attempts: list[int] = []

        @worker.task(name)
        def charge(_order: Any, task: Task) -> None:
            attempts.append(task.attempt)
            raise Failure("the bank said no", code="card_declined", retryable=False)

        error = self.failure(worker, name, attempts=5)
        self.assertEqual((error.kind, error.message), ("card_declined", "the bank said no"))
        self.assertEqual(attempts, [1])

    def test_a_retried_failure_is_the_same_call_at_the_next_attempt(self) -> None:
        worker, name = self.worker(), unique("charge")
        seen: list[Task] = []

        @worker.task(name)
        def charge(_order: Any, task: Task) -> int:
            seen.append(task)
            if task.attempt < 3:
                raise Failure("the bank is busy", code="busy")
            return task.attempt

        with worker:
            execution = self.start(name, attempts=5, wait_ms=20)
            self.assertEqual(self.result(execution), 3)
        self.assertEqual([task.attempt for task in seen], [1, 2, 3])
        self.assertEqual(len({task.promise for task in seen}), 1)
        self.assertEqual({task.execution for task in seen}, {execution})
        self.assertEqual({task.delivery for task in seen}, {"at-least-once"})

    def test_an_exception_is_a_failure_of_its_type(self) -> None:
        worker, name = self.worker(), unique("look_up")

        @worker.task(name)
        def look_up(_order: Any) -> None:
            raise LookupError("no such order")

        error = self.failure(worker, name)
        self.assertEqual((error.kind, error.message), ("LookupError", "no such order"))

    def test_a_result_that_is_not_json_is_a_final_failure(self) -> None:
        worker, name = self.worker(), unique("odd")
        attempts: list[int] = []

        @worker.task(name)
        def odd(_input: Any, task: Task) -> Any:
            attempts.append(task.attempt)
            return {1, 2, 3}

        self.assertEqual(self.failure(worker, name, attempts=5).kind, "invalid_payload")
        self.assertEqual(attempts, [1])


class Holding(Against):
    """Who has a task, and for how long."""

    def test_many_tasks_share_a_few_slots(self) -> None:
        worker = self.worker(concurrency=8)
        lock = threading.Lock()
        busy, most = 0, 0

        @worker.task
        def greet(name: str) -> str:
            nonlocal busy, most
            with lock:
                busy += 1
                most = max(most, busy)
            time.sleep(0.01)
            with lock:
                busy -= 1
            return f"hello {name}"

        names = [f"number {number}" for number in range(200)]
        with worker:
            greetings = self.client.call("greetings", names, timeout_ms=LIMIT_MS)
        self.assertEqual(greetings, [f"hello {name}" for name in names])
        self.assertTrue(2 <= most <= 8, f"{most} at a time")

    def test_a_long_task_keeps_its_lease(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")

        @worker.task(name)
        def slow(_input: Any, task: Task) -> dict[str, Any]:
            was_cancelled = task.cancelled.wait(3)
            return {"attempt": task.attempt, "cancelled": was_cancelled}

        with worker:
            self.assertEqual(self.relay(name, attempts=5), {"attempt": 1, "cancelled": False})

    def test_a_lost_worker_is_replaced_and_its_result_refused(self) -> None:
        name, tasks = unique("charge"), self.tasks()
        execution = self.start(name, attempts=5)
        lost = self.claim(tasks, name, lease_ms=1_000)
        worker = self.worker()

        @worker.task(name)
        def charge(_order: Any, task: Task) -> dict[str, Any]:
            return {"attempt": task.attempt, "promise": task.promise}

        with worker:
            self.assertEqual(self.result(execution), {"attempt": lost.attempt + 1, "promise": lost.promise})
        late: list[Callable[[], object]] = [
            lambda: tasks.heartbeat(lost),
            lambda: tasks.tell(lost, completed("late")),
            lambda: tasks.tell(lost, failed("late", None, retryable=True)),
        ]
        for request in late:
            with self.assertRaises(Problem) as caught:
                request()
            self.assertEqual((caught.exception.status, caught.exception.code), (409, "lease_lost"))

    def test_a_cancelled_execution_stops_its_task(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")
        begun, told = threading.Event(), threading.Event()

        @worker.task(name)
        def slow(_input: Any, task: Task) -> None:
            begun.set()
            if task.cancelled.wait(LIMIT_MS / 1_000):
                told.set()

        with worker:
            execution = self.start(name)
            self.assertTrue(begun.wait(LIMIT_MS / 1_000))
            self.client.cancel(execution, "nobody wants it")
            self.assertTrue(told.wait(LIMIT_MS / 1_000))
            with self.assertRaises(ExecutionFailed) as caught:
                self.result(execution)
        self.assertEqual(caught.exception.kind, "cancelled")

    def test_a_task_that_takes_too_long_is_told_to_stop(self) -> None:
        worker, name = self.worker(lease_ms=1_000), unique("slow")
        told = threading.Event()

        @worker.task(name)
        def slow(_input: Any, task: Task) -> None:
            if task.timeout_ms == 500 and task.cancelled.wait(LIMIT_MS / 1_000):
                told.set()

        with worker:
            with self.assertRaises(ExecutionFailed) as caught:
                self.relay(name, timeout_ms=500)
            self.assertTrue(told.wait(LIMIT_MS / 1_000))
        self.assertEqual(caught.exception.kind, "timeout")


class Programs(Against):
    """How programs begin and end."""

    def test_a_key_starts_one_execution_and_a_signal_reaches_it(self) -> None:
        key = unique("key")
        execution = self.client.start("listen", "go", key=key)
        self.assertEqual(self.client.start("listen", "go", key=key), execution)
        with self.assertRaises(TimeoutError):
            self.client.result(execution, timeout_ms=200)
        for _ in range(2):
            self.client.signal(execution, "go", {"by": "Grace"}, key="once")
        self.assertEqual(self.result(execution), {"by": "Grace"})

    def test_a_stopping_worker_finishes_what_it_has(self) -> None:
        worker, name = self.worker(), unique("slow")
        begun, may_end = threading.Event(), threading.Event()

        @worker.task(name)
        def slow(_input: Any) -> str:
            begun.set()
            may_end.wait(LIMIT_MS / 1_000)
            return "done"

        running = threading.Thread(target=worker.run)
        running.start()
        execution = self.start(name)
        self.assertTrue(begun.wait(LIMIT_MS / 1_000))
        worker.stop()
        running.join(0.5)
        self.assertTrue(running.is_alive())
        may_end.set()
        running.join(LIMIT_MS / 1_000)
        self.assertFalse(running.is_alive())
        # It was told before the worker ended: nobody waits here.
        self.assertEqual(self.client.result(execution, timeout_ms=5_000), "done")

    def test_a_worker_out_of_patience_leaves_its_task_to_others(self) -> None:
        name = unique("slow")
        hasty, patient = self.worker(lease_ms=1_000, grace_ms=100), self.worker()
        begun, told = threading.Event(), threading.Event()

        @hasty.task(name)
        def slow(_input: Any, task: Task) -> str:
            begun.set()
            if task.cancelled.wait(LIMIT_MS / 1_000):
                told.set()
            return "too late"

        with hasty:
            execution = self.start(name, attempts=5)
            self.assertTrue(begun.wait(LIMIT_MS / 1_000))
        self.assertTrue(told.wait(LIMIT_MS / 1_000))
        patient.task(name)(lambda _input, task: task.attempt)
        with patient:
            self.assertEqual(self.result(execution), 2)

    def test_a_worker_with_a_wrong_token_says_so(self) -> None:
        worker = Worker(token="onward_wrong")
        worker.task("nothing")(lambda: None)
        with self.assertRaises(Problem) as caught:
            worker.run()
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthenticated"))
        self.assertIn("gives this worker no tasks", str(caught.exception))


class Following(Against):
    """What comes with the answer to how a task ended. A worker need not ask for it, so it is on no list."""

    def test_what_follows_from_a_task_comes_with_its_end(self) -> None:
        name, tasks = unique("charge"), self.tasks()
        execution = self.start(name, attempts=3)
        task = self.claim(tasks, name, lease_ms=30_000)
        for attempt in (2, 3):
            following = tasks.tell(task, failed("busy", None, retryable=True), wish(name, lease_ms=30_000))
            assert following is not None
            self.assertEqual((following.promise, following.attempt), (task.promise, attempt))
            task = following
        self.assertIsNone(tasks.tell(task, completed("done")))
        self.assertEqual(self.result(execution), "done")


class Listed(unittest.TestCase):
    """The list and the tests are the same."""

    def test_every_scenario_has_a_test(self) -> None:
        names = {name for part in (Values, Failures, Holding, Programs) for name in dir(part)}
        tests = {name[len("test_") :].replace("_", " ") for name in names if name.startswith("test_")}
        self.assertEqual(tests, set(LIST.read_text().splitlines()))
