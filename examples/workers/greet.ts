/** A worker and a client in one process: the client starts a workflow that calls the worker. */

import { Client, Worker } from "@onward/worker";

const worker = new Worker();

worker.task("greet", async (name: string, task) => {
  return `hello ${name}, from TypeScript at attempt ${task.attempt}`;
});

const stop = new AbortController();
const running = worker.run({ signal: stop.signal });

const names = ["Ada", "Grace", "Alan"];
const greetings = await new Client().call<string[]>("greetings", names, { timeoutMs: 60_000 });
greetings.forEach((greeting) => console.log(greeting));

stop.abort();
await running;
