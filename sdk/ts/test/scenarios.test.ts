/**
 * The scenarios that every worker client must pass against a server, listed in
 * examples/workers/scenarios.txt.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Failure, Problem, TimeoutError, Worker, type Task } from "../src/index.js";
import { completed, failed } from "../src/outcome.js";
import {
  aborted,
  claim,
  client,
  deferred,
  failure,
  newWorker,
  nextTaskRequest,
  relay,
  result,
  scenario,
  scenarios,
  serverTest,
  silent,
  start,
  tasks,
  TIMEOUT_MS,
  unique,
  whileRunning,
} from "./scenario.js";

/** Relative to dist/test, which contains the compiled test. */
const LIST = new URL("../../../../examples/workers/scenarios.txt", import.meta.url);

const SHAPES = [
  null,
  true,
  false,
  0,
  -1,
  9_007_199_254_740_991,
  0.1,
  -2.5e-8,
  "",
  'ünïcödé, 日本語, 🎈, \u0000, " and \\, \n',
  [],
  {},
  [null, [[]], { "": { é: [1, "2", false] } }],
  { null: null, deep: { a: { b: { c: [{ d: null }] } } } },
];

scenario("a task succeeds", async () => {
  const [worker, name] = [newWorker(), unique("add")];
  worker.task(name, (numbers: number[]) => numbers.reduce((sum, number) => sum + number, 0));
  assert.equal(await whileRunning(worker, () => relay(name, [1, 2, 3])), 6);
});

scenario("input and result can be any json", async () => {
  const [worker, name] = [newWorker(), unique("echo")];
  const seen: unknown[] = [];
  worker.task(name, async (value: unknown) => {
    seen.push(value);
    return value;
  });
  await whileRunning(worker, async () => {
    for (const shape of SHAPES) {
      assert.deepEqual(await relay(name, shape), shape);
    }
  });
  assert.deepEqual(seen, SHAPES);
});

scenario("a large value is passed unchanged", async () => {
  const [worker, name] = [newWorker(), unique("echo")];
  worker.task(name, (value: unknown) => value);
  const large = { text: "é".repeat(250_000) };
  assert.deepEqual(await whileRunning(worker, () => relay(name, large)), large);
});

scenario("a non retryable failure reaches the workflow", async () => {
  const [worker, name] = [newWorker(), unique("charge")];
  const attempts: number[] = [];
  worker.task(name, (_order: unknown, task) => {
    attempts.push(task.attempt);
    throw new Failure("the bank declined the card", { code: "card_declined", retryable: false });
  });
  const error = await whileRunning(worker, () => failure(relay(name, null, { max_attempts: 5 })));
  assert.deepEqual(error, { kind: "card_declined", message: "the bank declined the card" });
  assert.deepEqual(attempts, [1]);
});

scenario("a retry has the same promise and the next attempt number", async () => {
  const [worker, name] = [newWorker(), unique("charge")];
  const seen: Task[] = [];
  worker.task(name, async (_order: unknown, task) => {
    seen.push(task);
    if (task.attempt < 3) {
      throw new Failure("the bank is busy", { code: "busy" });
    }
    return task.attempt;
  });
  const execution = await whileRunning(worker, async () => {
    const execution = await start(name, null, { max_attempts: 5, interval_ms: 20 });
    assert.equal(await result(execution), 3);
    return execution;
  });
  assert.deepEqual(seen.map((task) => task.attempt), [1, 2, 3]);
  assert.equal(new Set(seen.map((task) => task.promise)).size, 1);
  assert.deepEqual(new Set(seen.map((task) => task.execution)), new Set([execution]));
  assert.deepEqual(new Set(seen.map((task) => task.delivery)), new Set(["at-least-once"]));
});

scenario("an exception is a failure with its type as the code", async () => {
  const [worker, name] = [newWorker(), unique("look_up")];
  worker.task(name, () => {
    throw new RangeError("no such order");
  });
  const error = await whileRunning(worker, () => failure(relay(name)));
  assert.deepEqual(error, { kind: "RangeError", message: "no such order" });
});

scenario("a result that is not json is a non retryable failure", async () => {
  const [worker, name] = [newWorker(), unique("odd")];
  const attempts: number[] = [];
  worker.task(name, (_input: unknown, task) => {
    attempts.push(task.attempt);
    return 1n;
  });
  const error = await whileRunning(worker, () => failure(relay(name, null, { max_attempts: 5 })));
  assert.equal(error.kind, "invalid_payload");
  assert.deepEqual(attempts, [1]);
});

scenario("concurrent tasks do not exceed the limit", async () => {
  const worker = newWorker({ concurrency: 8 });
  let [running, maxRunning] = [0, 0];
  worker.task("greet", async (name: string) => {
    running += 1;
    maxRunning = Math.max(maxRunning, running);
    await sleep(10);
    running -= 1;
    return `hello ${name}`;
  });
  const names = Array.from({ length: 200 }, (_, number) => `number ${number}`);
  const greetings = await whileRunning(worker, () =>
    client.call("greetings", names, { timeoutMs: TIMEOUT_MS }),
  );
  assert.deepEqual(greetings, names.map((name) => `hello ${name}`));
  assert.ok(maxRunning >= 2 && maxRunning <= 8, `${maxRunning} tasks at a time`);
});

scenario("heartbeats keep the lease of a long task", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  worker.task(name, async (_input: unknown, { attempt, signal }) => ({
    attempt,
    cancelled: await aborted(signal, 3_000),
  }));
  const found = await whileRunning(worker, () => relay(name, null, { max_attempts: 5 }));
  assert.deepEqual(found, { attempt: 1, cancelled: false });
});

scenario("an expired lease is reassigned and the late result rejected", async () => {
  const name = unique("charge");
  const execution = await start(name, null, { max_attempts: 5 });
  const lost = await claim(name, 1_000);
  const worker = newWorker();
  worker.task(name, (_order: unknown, { attempt, promise }) => ({ attempt, promise }));
  const found = await whileRunning(worker, () => result(execution));
  assert.deepEqual(found, { attempt: lost.attempt + 1, promise: lost.promise });
  const late = [
    () => tasks.heartbeat(lost),
    () => tasks.report(lost, completed("late")),
    () => tasks.report(lost, failed("late", undefined, true)),
  ];
  for (const request of late) {
    await assert.rejects(request(), { name: "Problem", status: 409, code: "lease_lost" });
  }
});

scenario("a cancelled execution cancels its task", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  const started = deferred();
  const cancelled = deferred<boolean>();
  worker.task(name, async (_input: unknown, { signal }) => {
    started.resolve();
    cancelled.resolve(await aborted(signal));
  });
  const error = await whileRunning(worker, async () => {
    const execution = await start(name);
    await started.promise;
    await client.cancel(execution, "no longer needed");
    assert.equal(await cancelled.promise, true);
    return failure(result(execution));
  });
  assert.equal(error.kind, "cancelled");
});

scenario("a task that exceeds its timeout is cancelled", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  const cancelled = deferred<boolean>();
  worker.task(name, async (_input: unknown, { signal, timeoutMs }) => {
    cancelled.resolve(timeoutMs === 500 && (await aborted(signal)));
  });
  const error = await whileRunning(worker, async () => {
    const error = await failure(relay(name, null, { timeout_ms: 500 }));
    assert.equal(await cancelled.promise, true);
    return error;
  });
  assert.equal(error.kind, "timeout");
});

scenario("an idempotency key starts one execution and delivers one signal", async () => {
  const key = unique("key");
  const execution = await client.start("listen", "go", { key });
  assert.equal(await client.start("listen", "go", { key }), execution);
  await assert.rejects(client.result(execution, { timeoutMs: 200 }), TimeoutError);
  for (const _ of ["once", "twice"]) {
    await client.signal(execution, "go", { by: "Grace" }, { key: "once" });
  }
  assert.deepEqual(await result(execution), { by: "Grace" });
});

scenario("a stopping worker finishes its tasks in flight", async () => {
  const [worker, name] = [newWorker(), unique("slow")];
  const started = deferred();
  const mayFinish = deferred();
  worker.task(name, async () => {
    started.resolve();
    await mayFinish.promise;
    return "done";
  });
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal });
  const execution = await start(name);
  await started.promise;
  stop.abort();
  const state = await Promise.race([running.then(() => "stopped"), sleep(500, "running")]);
  assert.equal(state, "running");
  mayFinish.resolve();
  await running;
  // The worker reported the result before `run` returned.
  assert.equal(await client.result(execution, { timeoutMs: 5_000 }), "done");
});

scenario("a task unfinished after the grace period is reassigned", async () => {
  const name = unique("slow");
  const [impatient, patient] = [newWorker({ leaseMs: 1_000, graceMs: 100 }), newWorker()];
  const started = deferred();
  const cancelled = deferred<boolean>();
  impatient.task(name, async (_input: unknown, { signal }) => {
    started.resolve();
    cancelled.resolve(await aborted(signal));
    return "too late";
  });
  const execution = await whileRunning(impatient, async () => {
    const execution = await start(name, null, { max_attempts: 5 });
    await started.promise;
    return execution;
  });
  assert.equal(await cancelled.promise, true);
  patient.task(name, (_input: unknown, task) => task.attempt);
  assert.equal(await whileRunning(patient, () => result(execution)), 2);
});

scenario("an invalid token stops the worker with an error", async () => {
  const worker = new Worker({ token: "onward_wrong", log: silent });
  worker.task("nothing", () => {});
  const error: unknown = await worker.run().catch((error: unknown) => error);
  assert.ok(error instanceof Problem);
  assert.deepEqual([error.status, error.code], [401, "unauthenticated"]);
  assert.match(error.message, /claim rejected by/);
});

// Chained claims are optional in a worker client, so this test is not a listed scenario.

serverTest("a report returns the next task", async () => {
  const name = unique("charge");
  const execution = await start(name, null, { max_attempts: 3 });
  let task = await claim(name, 30_000);
  for (const attempt of [2, 3]) {
    const outcome = failed("busy", undefined, true);
    const next = await tasks.report(task, outcome, nextTaskRequest(name, 30_000));
    assert.ok(next, "no next task was returned");
    assert.deepEqual([next.promise, next.attempt], [task.promise, attempt]);
    task = next;
  }
  assert.equal(await tasks.report(task, completed("done")), undefined);
  assert.equal(await result(execution), "done");
});

void test("every scenario has a test", () => {
  assert.deepEqual(scenarios, readFileSync(LIST, "utf8").trim().split("\n"));
});
