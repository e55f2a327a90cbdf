"""A worker that greets, and a program that has three people greeted: both in one process, to try it out."""

from onward import Client, Task, Worker

worker = Worker()


@worker.task
def greet(name: str, task: Task) -> str:
    return f"hello {name}, from Python at attempt {task.attempt}"


with worker, Client() as client:
    for greeting in client.call("greetings", ["Ada", "Grace", "Alan"], timeout_ms=60_000):
        print(greeting)
