"""A worker and a client in one process: the client starts a workflow that calls the worker."""

from onward import Client, Task, Worker

worker = Worker()


@worker.task
def greet(name: str, task: Task) -> str:
    return f"hello {name}, from Python at attempt {task.attempt}"


with worker, Client() as client:
    for greeting in client.call("greetings", ["Ada", "Grace", "Alan"], timeout_ms=60_000):
        print(greeting)
