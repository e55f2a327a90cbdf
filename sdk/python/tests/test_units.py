"""Unit tests: backoff, problems, JSON, options, outcomes, leases and heartbeats."""

from __future__ import annotations

import os
import threading
import unittest
from typing import Any, cast
from unittest.mock import patch

from onward import Failure, NotJson, Problem, Task, Unreachable, Worker
from onward.backoff import backoff_ms, retry_delay_ms
from onward.errors import parse_problem
from onward.http_client import HttpClient, decode, encode
from onward.lease import HeartbeatScheduler, Lease
from onward.options import DEFAULT_SERVER, connection_options
from onward.outcome import bind_arguments, completed, failed, run_task
from onward.report import is_invalid_content, is_retryable
from onward.task_client import TaskClient
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

TIMEOUT_S = 60
"""Upper limit of every wait in a test."""


def task(**changes: Any) -> Task:
    return Task.from_document({**DOCUMENT, **changes})


class Backoff(unittest.TestCase):
    def test_backoff_doubles_up_to_its_maximum(self) -> None:
        delays = [backoff_ms(failures, lambda: 0.0) for failures in (1, 2, 3, 7, 8, 1_000_000)]
        self.assertEqual(delays, [100, 200, 400, 6_400, 10_000, 10_000])

    def test_jitter_subtracts_up_to_half_of_the_backoff(self) -> None:
        self.assertEqual(backoff_ms(1, lambda: 1.0), 50)

    def test_retry_after_takes_precedence_over_the_backoff(self) -> None:
        self.assertEqual(retry_delay_ms(Problem(503, "unavailable", "", 2_000), 1), 2_000)
        self.assertEqual(retry_delay_ms(Problem(503, "unavailable", "", 9_000_000), 1), 60_000)
        self.assertEqual(retry_delay_ms(Unreachable(""), 1, lambda: 0.0), 100)


class Problems(unittest.TestCase):
    def test_a_problem_document_is_parsed(self) -> None:
        texts = {"type": "urn:x", "title": "t", "detail": "expired", "code": "lease_lost"}
        problem = parse_problem(409, None, encode({**texts, "status": 409}))
        actual = (problem.status, problem.code, problem.detail)
        self.assertEqual(actual, (409, "lease_lost", "expired"))
        self.assertEqual(str(problem), "expired (409 lease_lost)")
        self.assertFalse(problem.is_transient)

    def test_an_error_response_of_a_proxy_becomes_a_problem(self) -> None:
        for content in (b"<html>", b"", b"[1]", b"\xff", b"null"):
            problem = parse_problem(502, "3", content)
            actual = (problem.code, problem.retry_after_ms, problem.is_transient)
            self.assertEqual(actual, ("unknown", 3_000, True))

    def test_retry_after_accepts_only_seconds(self) -> None:
        for text in (None, "", "soon", "-1", "²", "Sun, 15 Nov 2026 12:00:00 GMT"):
            self.assertIsNone(parse_problem(429, text, b"").retry_after_ms)

    def test_transient_errors_are_retryable_and_rejected_content_is_not(self) -> None:
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
        for error, is_transient, is_rejected in rows:
            with self.subTest(error=error):
                self.assertEqual(is_retryable(error), is_transient)
                self.assertEqual(is_invalid_content(error), is_rejected)


class Json(unittest.TestCase):
    def test_a_value_that_json_cannot_encode_is_rejected(self) -> None:
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        for value in (float("nan"), float("inf"), object(), {1, 2}, b"bytes", "\ud800", cyclic):
            with self.subTest(value=repr(value)), self.assertRaises(NotJson):
                encode(value)

    def test_text_is_encoded_as_utf_8(self) -> None:
        self.assertEqual(encode({"é": [1.5, None]}), '{"é":[1.5,null]}'.encode())

    def test_a_response_that_is_not_json_counts_as_unreachable(self) -> None:
        with self.assertRaises(Unreachable):
            decode(b"<html>")


class Options(unittest.TestCase):
    def test_options_default_to_the_environment(self) -> None:
        with patch.dict(os.environ, {"ONWARD_SERVER": "http://onward:1", "ONWARD_TOKEN": "t"}):
            self.assertEqual(connection_options(None, None, {}).server, "http://onward:1")
            options = connection_options(None, "mine", {})
            self.assertEqual(options.headers()["Authorization"], "Bearer mine")
            self.assertNotIn("mine", repr(options))
        with patch.dict(os.environ, clear=True):
            self.assertEqual(connection_options(None, None, {}).server, DEFAULT_SERVER)
            self.assertNotIn("Authorization", connection_options(None, None, {}).headers())

    def test_a_given_scope_is_sent_as_headers(self) -> None:
        headers = connection_options(None, None, {"tenant": "acme", "project": None}).headers()
        self.assertEqual(headers["onward-tenant"], "acme")
        self.assertNotIn("onward-project", headers)

    def test_an_invalid_server_url_is_rejected(self) -> None:
        for server in ("localhost:7400", "ftp://onward", "http://"):
            with self.subTest(server=server), self.assertRaises(ValueError):
                HttpClient(connection_options(server, None, {}))


class RunTask(unittest.TestCase):
    def test_a_function_receives_the_arguments_that_it_declares(self) -> None:
        it = task()
        self.assertEqual(bind_arguments(lambda: "nothing")(it), "nothing")
        self.assertEqual(bind_arguments(lambda order: order)(it), {"cents": 5})
        self.assertEqual(bind_arguments(lambda order, currency="EUR": currency)(it), "EUR")
        self.assertIs(bind_arguments(lambda order, task: task)(it), it)

    def test_each_return_value_and_exception_becomes_an_outcome(self) -> None:
        def decline(_order: Any) -> None:
            raise Failure("no", code="card_declined", retryable=False)

        def exit_process(_order: Any) -> None:
            raise SystemExit

        rows = [
            (lambda order: order["cents"], completed(5)),
            (decline, failed("no", "card_declined", retryable=False)),
            (lambda order: order["euros"], failed("'euros'", "KeyError", retryable=True)),
            (exit_process, failed("SystemExit", "SystemExit", retryable=True)),
        ]
        for function, outcome in rows:
            self.assertEqual(run_task(bind_arguments(function), task()), outcome)

    def test_any_failure_message_can_be_encoded(self) -> None:
        body = failed("half \ud800 " + "x" * 100_000, None, retryable=True).body
        self.assertNotIn("code", body["error"])
        self.assertLess(len(encode(body)), 11_000)


class Leases(unittest.TestCase):
    def test_a_heartbeat_is_due_after_a_third_of_the_lease(self) -> None:
        self.assertEqual(Lease(task(), 0.0, 0.0).next_heartbeat(5.0), 15.0)

    def test_a_heartbeat_is_due_when_a_task_reaches_its_timeout(self) -> None:
        lease = Lease(task(timeoutMs=4_000), 0.0, 1.0)
        self.assertEqual([lease.next_heartbeat(now) for now in (1.0, 5.0)], [5.0, 15.0])

    def test_a_lease_counts_from_when_it_was_requested(self) -> None:
        lease = Lease(task(), requested_at=5.0, now=8.0)
        self.assertEqual(lease.expires_at, 35.0)
        lease.renew(requested_at=10.0)
        self.assertEqual(lease.expires_at, 40.0)

    def test_a_claim_waits_for_at_most_a_third_of_the_lease(self) -> None:
        waits = [claim_wait_ms(lease_ms) for lease_ms in (1_000, 30_000, 600_000)]
        self.assertEqual(waits, [333, 10_000, 20_000])

    def test_a_lost_lease_cancels_the_task(self) -> None:
        lease = Lease(task(), 0.0, 0.0)
        lease.lose()
        self.assertTrue(lease.lost and lease.task.cancelled.is_set())

    def test_the_claim_token_is_not_in_the_representation(self) -> None:
        self.assertNotIn("secret", repr(task()))


class SlowHeartbeatClient(TaskClient):
    """Responds to the heartbeats of one task only when the test allows it."""

    def __init__(self, slow: Task) -> None:
        self._slow = slow
        self.is_stuck, self.may_respond = threading.Event(), threading.Event()
        self.others = threading.Semaphore(0)

    def heartbeat(self, task: Task, response_timeout_ms: int = 0) -> None:
        if task is self._slow:
            self.is_stuck.set()
            self.may_respond.wait(TIMEOUT_S)
        else:
            self.others.release()


class Heartbeats(unittest.TestCase):
    def setUp(self) -> None:
        self.slow, self.other = (Lease(task(leaseMs=30), 0.0, 0.0) for _ in range(2))
        self.client = SlowHeartbeatClient(self.slow.task)
        self.heartbeats = HeartbeatScheduler(self.client, 2)
        self.heartbeats.start()
        self.addCleanup(self.heartbeats.stop)
        self.addCleanup(self.client.may_respond.set)

    def test_a_slow_heartbeat_delays_no_other(self) -> None:
        self.heartbeats.add(self.slow)
        self.assertTrue(self.client.is_stuck.wait(TIMEOUT_S))
        self.heartbeats.add(self.other)
        for _ in range(3):
            self.assertTrue(self.client.others.acquire(timeout=TIMEOUT_S))
        self.assertFalse(self.client.may_respond.is_set())

    def test_a_finished_task_gets_no_heartbeats(self) -> None:
        self.heartbeats.remove(self.other)
        self.heartbeats.add(self.other)
        self.heartbeats.add(self.slow)
        self.assertTrue(self.client.is_stuck.wait(TIMEOUT_S))
        self.assertFalse(self.client.others.acquire(blocking=False))


class Registering(unittest.TestCase):
    def test_a_decorated_function_can_be_called_directly(self) -> None:
        worker = Worker(DEFAULT_SERVER)

        @worker.task
        def charge(order: int) -> int:
            return order + 1

        self.assertEqual(charge(1), 2)
        with self.assertRaisesRegex(ValueError, "task charge is already registered"):
            worker.task("charge")(lambda: None)

    def test_invalid_worker_setups_are_rejected_immediately(self) -> None:
        async def later() -> None: ...

        with self.assertRaisesRegex(TypeError, "async function"):
            Worker(DEFAULT_SERVER).task(later)
        with self.assertRaisesRegex(ValueError, "no tasks registered"):
            Worker(DEFAULT_SERVER).run()
        with self.assertRaises(ValueError):
            Worker(DEFAULT_SERVER, concurrency=0)


class Outcomes(unittest.TestCase):
    """Failures made of unusual exceptions."""

    def test_any_exception_can_be_reported(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        def fails(error: BaseException) -> dict[str, Any]:
            def function(_task: Task) -> None:
                raise error

            outcome = run_task(function, task())
            self.assertTrue(outcome.is_failure)
            return cast("dict[str, Any]", outcome.body["error"])

        self.assertEqual(fails(Failure(cast(str, ValueError("bad"))))["message"], "bad")
        self.assertEqual(fails(Odd())["message"], "Odd without a text representation")
        self.assertEqual(len(fails(Failure("x" * 20_000, code="y" * 1_000))["code"]), 200)
