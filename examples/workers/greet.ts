/** A worker that greets, and a program that has three people greeted: both in one process, to try it out. */

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
