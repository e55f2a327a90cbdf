"""Workers for Onward: functions that workflows call.

    from onward import Worker

    worker = Worker()

    @worker.task
    def charge(order):
        return {"charged": order["cents"]}

    worker.run()
"""

from .client import Client
from .errors import ExecutionFailed, NotJson, OnwardError, Problem, Unreachable
from .task import Failure, Task
from .worker import Worker

__all__ = [
    "Client",
    "ExecutionFailed",
    "Failure",
    "NotJson",
    "OnwardError",
    "Problem",
    "Task",
    "Unreachable",
    "Worker",
]
