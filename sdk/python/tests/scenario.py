"""Helpers of the scenario tests: the server under test, a client, workers and raw requests."""

from __future__ import annotations

import os
import unittest
import uuid
from typing import Any

from onward import Client, Worker
from onward.http_client import HttpClient
from onward.options import connection_options
from onward.task import Task
from onward.task_client import ClaimRequest, TaskClient

WORKER_TOKEN = os.environ.get("ONWARD_WORKER_TOKEN")
"""A token with the role `worker`; default: `ONWARD_TOKEN`."""
TIMEOUT_MS = 60_000
"""Upper limit of every wait in a scenario."""


def unique(name: str) -> str:
    """Returns a name that no other scenario, in any language, uses."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def claim_request(name: str, lease_ms: int) -> ClaimRequest:
    """A request for tasks of this name."""
    return ClaimRequest("a test", [name], lease_ms, TIMEOUT_MS)


@unittest.skipUnless(
    os.environ.get("ONWARD_SERVER"),
    "ONWARD_SERVER is not set: start a server, deploy examples/workflows/built/remote.wasm",
)
class ScenarioTestCase(unittest.TestCase):
    """Tests that require a server."""

    def setUp(self) -> None:
        self.client = Client()
        self.addCleanup(self.client.close)

    def worker(self, **settings: Any) -> Worker:
        """A worker without registered tasks."""
        return Worker(token=WORKER_TOKEN, **settings)

    def task_client(self) -> TaskClient:
        """Sends raw protocol requests, to simulate a worker that crashes or stalls."""
        http = HttpClient(connection_options(None, WORKER_TOKEN, {}))
        self.addCleanup(http.close)
        return TaskClient(http)

    def claim(self, tasks: TaskClient, name: str, lease_ms: int) -> Task:
        """Claims one task of this name."""
        claimed = tasks.claim(claim_request(name, lease_ms), 1)
        self.assertEqual(len(claimed), 1)
        return claimed[0]

    def start(self, task: str, input: Any = None, **options: Any) -> str:
        """Starts a workflow that calls the task."""
        return self.client.start("relay", {"task": task, "input": input, **options})

    def result(self, execution: str) -> Any:
        """Waits for the result of an execution."""
        return self.client.result(execution, timeout_ms=TIMEOUT_MS)

    def relay(self, task: str, input: Any = None, **options: Any) -> Any:
        """Starts a workflow that calls the task, and waits for its result."""
        return self.result(self.start(task, input, **options))
