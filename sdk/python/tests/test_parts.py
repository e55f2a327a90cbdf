"""The parts that need no server: what is decided, and what is written and read."""

from __future__ import annotations

import os
import threading
import unittest
from typing import Any, cast
from unittest.mock import patch

from onward import Failure, NotJson, Problem, Task, Unreachable, Worker
from onward.access import SERVER, access
from onward.backoff import backoff_ms, wait_ms
from onward.connections import Connections, decode, encode
from onward.errors import problem_of
from onward.lease import Heart, Lease
from onward.outcome import call_of, completed, failed, perform
from onward.report import is_content, may_pass
from onward.tasks import Tasks
from onward.worker import claim_wait_ms

DOCUMENT = {
    "task": "t-1",
    "token": "secret",
    "execution": "e",
    "promise": "e.root.0",
    "function": "charge",
    "attempt": 2,
    "input": {"cents": 5},
    "delivery": "at-most-once",
    "leasedUntil": "2026-11-15T12:00:30Z",
    "leaseMs": 30_000,
}

LIMIT_S = 60
"""Nothing here takes as long."""


def task(**changes: Any) -> Task:
    return Task.of({**DOCUMENT, **changes})


class Backoff(unittest.TestCase):
    def test_waits_double_up_to_a_limit(self) -> None:
        waits = [backoff_ms(failures, lambda: 0.0) for failures in (1, 2, 3, 7, 8, 1_000_000)]
        self.assertEqual(waits, [100, 200, 400, 6_400, 10_000, 10_000])

    def test_up_to_half_of_a_wait_is_left_out(self) -> None:
        self.assertEqual(backoff_ms(1, lambda: 1.0), 50)

    def test_what_the_server_wants_counts_more(self) -> None:
        self.assertEqual(wait_ms(Problem(503, "unavailable", "", 2_000), 1), 2_000)
        self.assertEqual(wait_ms(Problem(503, "unavailable", "", 9_000_000), 1), 60_000)
        self.assertEqual(wait_ms(Unreachable(""), 1, lambda: 0.0), 100)


class Problems(unittest.TestCase):
    def test_a_problem_document_is_read(self) -> None:
        content = encode({"type": "urn:x", "title": "t", "status": 409, "detail": "gone", "code": "lease_lost"})
        problem = problem_of(409, None, content)
        self.assertEqual((problem.status, problem.code, problem.detail), (409, "lease_lost", "gone"))
        self.assertEqual(str(problem), "gone (409 lease_lost)")
        self.assertFalse(problem.is_transient)

    def test_what_something_between_answers_is_a_problem_too(self) -> None:
        for content in (b"<html>", b"", b"[1]", b"\xff", b"null"):
            problem = problem_of(502, "3", content)
            self.assertEqual((problem.code, problem.retry_after_ms, problem.is_transient), ("unknown", 3_000, True))

    def test_only_seconds_are_understood(self) -> None:
        for text in (None, "", "soon", "-1", "²", "Sun, 15 Nov 2026 12:00:00 GMT"):
            self.assertIsNone(problem_of(429, text, b"").retry_after_ms)

    def test_what_may_pass_is_told_again_and_what_is_wrong_is_told_otherwise(self) -> None:
        rows = [
            (Unreachable(""), True, False),
            (Problem(429, "rate_limited", ""), True, False),
            (Problem(503, "unavailable", ""), True, False),
            (Problem(413, "too_large", ""), False, True),
            (Problem(422, "unprocessable", ""), False, True),
            (NotJson(""), False, True),
            (Problem(409, "lease_lost", ""), False, False),
            (Problem(401, "unauthenticated", ""), False, False),
        ]
        for error, passes, content in rows:
            with self.subTest(error=error):
                self.assertEqual((may_pass(error), is_content(error)), (passes, content))


class Json(unittest.TestCase):
    def test_what_is_not_json_is_not_sent(self) -> None:
        round: list[Any] = []
        round.append(round)
        for value in (float("nan"), float("inf"), object(), {1, 2}, b"bytes", "\ud800", round):
            with self.subTest(value=repr(value)), self.assertRaises(NotJson):
                encode(value)

    def test_text_is_sent_as_it_is(self) -> None:
        self.assertEqual(encode({"é": [1.5, None]}), '{"é":[1.5,null]}'.encode())

    def test_an_answer_that_is_not_json_is_no_answer(self) -> None:
        with self.assertRaises(Unreachable):
            decode(b"<html>")


class Access(unittest.TestCase):
    def test_the_environment_fills_in_what_is_not_given(self) -> None:
        with patch.dict(os.environ, {"ONWARD_SERVER": "http://onward:1", "ONWARD_TOKEN": "t"}):
            self.assertEqual(access(None, None, {}).server, "http://onward:1")
            self.assertEqual(access(None, "mine", {}).headers()["Authorization"], "Bearer mine")
            self.assertNotIn("mine", repr(access(None, "mine", {})))
        with patch.dict(os.environ, clear=True):
            self.assertEqual(access(None, None, {}).server, SERVER)
            self.assertNotIn("Authorization", access(None, None, {}).headers())

    def test_a_scope_is_told_where_it_is_given(self) -> None:
        headers = access(None, None, {"tenant": "acme", "project": None}).headers()
        self.assertEqual(headers["onward-tenant"], "acme")
        self.assertNotIn("onward-project", headers)

    def test_what_is_no_url_is_refused(self) -> None:
        for server in ("localhost:7400", "ftp://onward", "http://"):
            with self.subTest(server=server), self.assertRaises(ValueError):
                Connections(access(server, None, {}))


class Performing(unittest.TestCase):
    def test_a_function_gets_as_much_as_it_takes(self) -> None:
        it = task()
        self.assertEqual(call_of(lambda: "nothing")(it), "nothing")
        self.assertEqual(call_of(lambda order: order)(it), {"cents": 5})
        self.assertEqual(call_of(lambda order, currency="EUR": currency)(it), "EUR")
        self.assertIs(call_of(lambda order, task: task)(it), it)

    def test_what_a_function_does_is_an_outcome(self) -> None:
        def decline(_order: Any) -> None:
            raise Failure("no", code="card_declined", retryable=False)

        def leave(_order: Any) -> None:
            raise SystemExit

        rows = [
            (lambda order: order["cents"], completed(5)),
            (decline, failed("no", "card_declined", retryable=False)),
            (lambda order: order["euros"], failed("'euros'", "KeyError", retryable=True)),
            (leave, failed("SystemExit", "SystemExit", retryable=True)),
        ]
        for function, outcome in rows:
            self.assertEqual(perform(call_of(function), task()), outcome)

    def test_any_message_can_be_sent(self) -> None:
        body = failed("half \ud800 " + "x" * 100_000, None, retryable=True).body
        self.assertNotIn("code", body["error"])
        self.assertLess(len(encode(body)), 11_000)


class Leases(unittest.TestCase):
    def test_a_heartbeat_is_due_after_a_third_of_the_lease(self) -> None:
        self.assertEqual(Lease(task(), 0.0, 0.0).next_beat(5.0), 15.0)

    def test_a_heartbeat_is_due_when_the_time_of_a_task_is_over(self) -> None:
        lease = Lease(task(timeoutMs=4_000), 0.0, 1.0)
        self.assertEqual([lease.next_beat(now) for now in (1.0, 5.0)], [5.0, 15.0])

    def test_a_lease_lasts_from_when_it_was_asked_for(self) -> None:
        lease = Lease(task(), asked=5.0, now=8.0)
        self.assertEqual(lease.until, 35.0)
        lease.extend(asked=10.0)
        self.assertEqual(lease.until, 40.0)

    def test_most_of_a_lease_is_left_when_a_claim_has_waited(self) -> None:
        self.assertEqual([claim_wait_ms(lease_ms) for lease_ms in (1_000, 30_000, 600_000)], [333, 10_000, 20_000])

    def test_a_lost_lease_tells_the_function(self) -> None:
        lease = Lease(task(), 0.0, 0.0)
        lease.lose()
        self.assertTrue(lease.lost and lease.task.cancelled.is_set())

    def test_a_token_is_not_shown(self) -> None:
        self.assertNotIn("secret", repr(task()))


class Beats(Tasks):
    """Heartbeats of which those of one task get no answer for long."""

    def __init__(self, slow: Task) -> None:
        self._slow = slow
        self.is_stuck, self.may_answer, self.others = threading.Event(), threading.Event(), threading.Semaphore(0)

    def heartbeat(self, task: Task, answer_ms: int = 0) -> None:
        if task is self._slow:
            self.is_stuck.set()
            self.may_answer.wait(LIMIT_S)
        else:
            self.others.release()


class Hearts(unittest.TestCase):
    def setUp(self) -> None:
        self.slow, self.other = (Lease(task(leaseMs=30), 0.0, 0.0) for _ in range(2))
        self.beats = Beats(self.slow.task)
        self.heart = Heart(self.beats, 2)
        self.heart.start()
        self.addCleanup(self.heart.stop)
        self.addCleanup(self.beats.may_answer.set)

    def test_a_heartbeat_does_not_wait_for_that_of_another_task(self) -> None:
        self.heart.hold(self.slow)
        self.assertTrue(self.beats.is_stuck.wait(LIMIT_S))
        self.heart.hold(self.other)
        for _ in range(3):
            self.assertTrue(self.beats.others.acquire(timeout=LIMIT_S))
        self.assertFalse(self.beats.may_answer.is_set())

    def test_a_task_that_has_ended_is_not_held_again(self) -> None:
        self.heart.release(self.other)
        self.heart.hold(self.other)
        self.heart.hold(self.slow)
        self.assertTrue(self.beats.is_stuck.wait(LIMIT_S))
        self.assertFalse(self.beats.others.acquire(blocking=False))


class Registering(unittest.TestCase):
    def test_a_decorated_function_stays_what_it_is(self) -> None:
        worker = Worker(SERVER)

        @worker.task
        def charge(order: int) -> int:
            return order + 1

        self.assertEqual(charge(1), 2)
        with self.assertRaisesRegex(ValueError, "charge has a function already"):
            worker.task("charge")(lambda: None)

    def test_what_cannot_work_is_told_at_once(self) -> None:
        async def later() -> None: ...

        with self.assertRaisesRegex(TypeError, "asynchronous"):
            Worker(SERVER).task(later)
        with self.assertRaisesRegex(ValueError, "nothing to perform"):
            Worker(SERVER).run()
        with self.assertRaises(ValueError):
            Worker(SERVER, concurrency=0)


class Outcomes(unittest.TestCase):
    """Whatever a function raises is told."""

    def test_a_failure_can_be_made_of_anything(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        def fails(error: BaseException) -> dict[str, Any]:
            def function(_task: Task) -> None:
                raise error

            outcome = perform(function, task())
            self.assertTrue(outcome.is_failure)
            return cast("dict[str, Any]", outcome.body["error"])

        self.assertEqual(fails(Failure(cast(str, ValueError("bad"))))["message"], "bad")
        self.assertEqual(fails(Odd())["message"], "a Odd that cannot be shown")
        self.assertEqual(len(fails(Failure("x" * 20_000, code="y" * 1_000))["code"]), 200)
