/** What every client for workers has to show, against a server: the list is examples/workers/scenarios.txt. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Failure, Problem, TimedOut, Worker, type Task } from "../src/index.js";
import { completed, failed } from "../src/outcome.js";
import {
  aborted,
  against,
  claim,
  client,
  failure,
  later,
  LIMIT_MS,
  newWorker,
  next,
  relay,
  result,
  scenario,
  scenarios,
  silent,
  start,
  tasks,
  unique,
  working,
} from "./against.js";

/** From dist/test, where this file is run. */
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
  assert.equal(await working(worker, () => relay(name, [1, 2, 3])), 6);
});

scenario("input and result can be any json", async () => {
  const [worker, name] = [newWorker(), unique("echo")];
  const seen: unknown[] = [];
  worker.task(name, async (value: unknown) => {
    seen.push(value);
    return value;
  });
  await working(worker, async () => {
    for (const shape of SHAPES) {
      assert.deepEqual(await relay(name, shape), shape);
    }
  });
  assert.deepEqual(seen, SHAPES);
});

scenario("a large value goes through", async () => {
  const [worker, name] = [newWorker(), unique("echo")];
  worker.task(name, (value: unknown) => value);
  const large = { text: "é".repeat(250_000) };
  assert.deepEqual(await working(worker, () => relay(name, large)), large);
});

scenario("a final failure reaches the workflow", async () => {
  const [worker, name] = [newWorker(), unique("charge")];
  const attempts: number[] = [];
  worker.task(name, (_order: unknown, task) => {
    attempts.push(task.attempt);
    throw new Failure("the bank said no", { code: "card_declined", retryable: false });
  });
  const error = await working(worker, () => failure(relay(name, null, { attempts: 5 })));
  assert.deepEqual(error, { kind: "card_declined", detail: "the bank said no" });
  assert.deepEqual(attempts, [1]);
});

scenario("a retried failure is the same call at the next attempt", async () => {
  const [worker, name] = [newWorker(), unique("charge")];
  const seen: Task[] = [];
  worker.task(name, async (_order: unknown, task) => {
    seen.push(task);
    if (task.attempt < 3) {
      throw new Failure("the bank is busy", { code: "busy" });
    }
    return task.attempt;
  });
  const execution = await working(worker, async () => {
    const execution = await start(name, null, { attempts: 5, wait_ms: 20 });
    assert.equal(await result(execution), 3);
    return execution;
  });
  assert.deepEqual(seen.map((task) => task.attempt), [1, 2, 3]);
  assert.equal(new Set(seen.map((task) => task.promise)).size, 1);
  assert.deepEqual(new Set(seen.map((task) => task.execution)), new Set([execution]));
  assert.deepEqual(new Set(seen.map((task) => task.delivery)), new Set(["at-least-once"]));
});

scenario("an exception is a failure of its type", async () => {
  const [worker, name] = [newWorker(), unique("look_up")];
  worker.task(name, () => {
    throw new RangeError("no such order");
  });
  const error = await working(worker, () => failure(relay(name)));
  assert.deepEqual(error, { kind: "RangeError", detail: "no such order" });
});

scenario("a result that is not json is a final failure", async () => {
  const [worker, name] = [newWorker(), unique("odd")];
  const attempts: number[] = [];
  worker.task(name, (_input: unknown, task) => {
    attempts.push(task.attempt);
    return 1n;
  });
  const error = await working(worker, () => failure(relay(name, null, { attempts: 5 })));
  assert.equal(error.kind, "invalid_payload");
  assert.deepEqual(attempts, [1]);
});

scenario("many tasks share a few slots", async () => {
  const worker = newWorker({ concurrency: 8 });
  let [busy, most] = [0, 0];
  worker.task("greet", async (name: string) => {
    busy += 1;
    most = Math.max(most, busy);
    await sleep(10);
    busy -= 1;
    return `hello ${name}`;
  });
  const names = Array.from({ length: 200 }, (_, number) => `number ${number}`);
  const greetings = await working(worker, () => client.call("greetings", names, { timeoutMs: LIMIT_MS }));
  assert.deepEqual(greetings, names.map((name) => `hello ${name}`));
  assert.ok(most >= 2 && most <= 8, `${most} at a time`);
});

scenario("a long task keeps its lease", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  worker.task(name, async (_input: unknown, { attempt, signal }) => ({
    attempt,
    cancelled: await aborted(signal, 3_000),
  }));
  const found = await working(worker, () => relay(name, null, { attempts: 5 }));
  assert.deepEqual(found, { attempt: 1, cancelled: false });
});

scenario("a lost worker is replaced and its result refused", async () => {
  const name = unique("charge");
  const execution = await start(name, null, { attempts: 5 });
  const lost = await claim(name, 1_000);
  const worker = newWorker();
  worker.task(name, (_order: unknown, { attempt, promise }) => ({ attempt, promise }));
  const found = await working(worker, () => result(execution));
  assert.deepEqual(found, { attempt: lost.attempt + 1, promise: lost.promise });
  const late = [
    () => tasks.heartbeat(lost),
    () => tasks.tell(lost, completed("late")),
    () => tasks.tell(lost, failed("late", undefined, true)),
  ];
  for (const request of late) {
    await assert.rejects(request(), { name: "Problem", status: 409, code: "lease_lost" });
  }
});

scenario("a cancelled execution stops its task", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  const begun = later();
  const told = later<boolean>();
  worker.task(name, async (_input: unknown, { signal }) => {
    begun.happen();
    told.happen(await aborted(signal));
  });
  const error = await working(worker, async () => {
    const execution = await start(name);
    await begun.happened;
    await client.cancel(execution, "nobody wants it");
    assert.equal(await told.happened, true);
    return failure(result(execution));
  });
  assert.equal(error.kind, "cancelled");
});

scenario("a task that takes too long is told to stop", async () => {
  const [worker, name] = [newWorker({ leaseMs: 1_000 }), unique("slow")];
  const told = later<boolean>();
  worker.task(name, async (_input: unknown, { signal, timeoutMs }) => {
    told.happen(timeoutMs === 500 && (await aborted(signal)));
  });
  const error = await working(worker, async () => {
    const error = await failure(relay(name, null, { timeout_ms: 500 }));
    assert.equal(await told.happened, true);
    return error;
  });
  assert.equal(error.kind, "timeout");
});

scenario("a key starts one execution and a signal reaches it", async () => {
  const key = unique("key");
  const execution = await client.start("listen", "go", { key });
  assert.equal(await client.start("listen", "go", { key }), execution);
  await assert.rejects(client.result(execution, { timeoutMs: 200 }), TimedOut);
  for (const _ of ["once", "twice"]) {
    await client.signal(execution, "go", { by: "Grace" }, { key: "once" });
  }
  assert.deepEqual(await result(execution), { by: "Grace" });
});

scenario("a stopping worker finishes what it has", async () => {
  const [worker, name] = [newWorker(), unique("slow")];
  const begun = later();
  const mayEnd = later();
  worker.task(name, async () => {
    begun.happen();
    await mayEnd.happened;
    return "done";
  });
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal });
  const execution = await start(name);
  await begun.happened;
  stop.abort();
  assert.equal(await Promise.race([running.then(() => "ended"), sleep(500, "works")]), "works");
  mayEnd.happen();
  await running;
  // It was told before the worker ended: nobody waits here.
  assert.equal(await client.result(execution, { timeoutMs: 5_000 }), "done");
});

scenario("a worker out of patience leaves its task to others", async () => {
  const [hasty, patient, name] = [newWorker({ leaseMs: 1_000, graceMs: 100 }), newWorker(), unique("slow")];
  const begun = later();
  const told = later<boolean>();
  hasty.task(name, async (_input: unknown, { signal }) => {
    begun.happen();
    told.happen(await aborted(signal));
    return "too late";
  });
  const execution = await working(hasty, async () => {
    const execution = await start(name, null, { attempts: 5 });
    await begun.happened;
    return execution;
  });
  assert.equal(await told.happened, true);
  patient.task(name, (_input: unknown, task) => task.attempt);
  assert.equal(await working(patient, () => result(execution)), 2);
});

scenario("a worker with a wrong token says so", async () => {
  const worker = new Worker({ token: "onward_wrong", log: silent });
  worker.task("nothing", () => {});
  const error: unknown = await worker.run().catch((error: unknown) => error);
  assert.ok(error instanceof Problem);
  assert.deepEqual([error.status, error.code], [401, "unauthenticated"]);
  assert.match(error.message, /gives this worker no tasks/);
});

// A worker need not ask for what comes with the answer to how a task ended, so this is on no list.

against("what follows from a task comes with its end", async () => {
  const name = unique("charge");
  const execution = await start(name, null, { attempts: 3 });
  let task = await claim(name, 30_000);
  for (const attempt of [2, 3]) {
    const following = await tasks.tell(task, failed("busy", undefined, true), next(name, 30_000));
    assert.ok(following, "nothing came");
    assert.deepEqual([following.promise, following.attempt], [task.promise, attempt]);
    task = following;
  }
  assert.equal(await tasks.tell(task, completed("done")), undefined);
  assert.equal(await result(execution), "done");
});

void test("every scenario has a test", () => {
  assert.deepEqual(scenarios, readFileSync(LIST, "utf8").trim().split("\n"));
});
