"""The server that the scenarios run against, and what they all need of it."""

from __future__ import annotations

import os
import unittest
import uuid
from typing import Any

from onward import Client, Worker
from onward.access import access
from onward.connections import Connections
from onward.task import Task
from onward.tasks import Tasks, Wish

WORKER_TOKEN = os.environ.get("ONWARD_WORKER_TOKEN")
"""A token with the role `worker`; `ONWARD_TOKEN` is used for everything if it is not set."""
LIMIT_MS = 60_000
"""No scenario takes as long."""


def unique(name: str) -> str:
    """A name that no other scenario uses, in whatever language."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def wish(name: str, lease_ms: int) -> Wish:
    """A wish for tasks of this name."""
    return Wish("a test", [name], lease_ms, LIMIT_MS)


@unittest.skipUnless(
    os.environ.get("ONWARD_SERVER"),
    "ONWARD_SERVER is not set: the scenarios need a server with examples/workflows/built/remote.wasm deployed",
)
class Against(unittest.TestCase):
    """A scenario against a server."""

    def setUp(self) -> None:
        self.client = Client()
        self.addCleanup(self.client.close)

    def worker(self, **settings: Any) -> Worker:
        """A worker without functions yet."""
        return Worker(token=WORKER_TOKEN, **settings)

    def tasks(self) -> Tasks:
        """The bare requests, for a worker that does not behave."""
        connections = Connections(access(None, WORKER_TOKEN, {}))
        self.addCleanup(connections.close)
        return Tasks(connections)

    def claim(self, tasks: Tasks, name: str, lease_ms: int) -> Task:
        """Claims one task of this name."""
        claimed = tasks.claim(wish(name, lease_ms), 1)
        self.assertEqual(len(claimed), 1)
        return claimed[0]

    def start(self, task: str, input: Any = None, **how: Any) -> str:
        """Starts a workflow that calls the task."""
        return self.client.start("relay", {"task": task, "input": input, **how})

    def result(self, execution: str) -> Any:
        """What it ends with."""
        return self.client.result(execution, timeout_ms=LIMIT_MS)

    def relay(self, task: str, input: Any = None, **how: Any) -> Any:
        """What a workflow that calls the task ends with."""
        return self.result(self.start(task, input, **how))
