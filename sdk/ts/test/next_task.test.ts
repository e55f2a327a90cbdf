/** Chained claims: the response to a report contains the next task. Tested on a fake server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Failure, Worker } from "../src/index.js";
import { countTask, FakeServer } from "./fake_server.js";
import { aborted, deferred, silent, whileRunning } from "./scenario.js";

const UNAVAILABLE = { status: 503, code: "unavailable", detail: "busy" };

function newWorker(server: string, concurrency: number, graceMs = 30_000): Worker {
  return new Worker({ server, token: "t", name: "anna", concurrency, graceMs, log: silent });
}

void test("a report requests the next task", async () => {
  const fake = new FakeServer();
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", { task: "t-1", next: countTask(2) });
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 1).task("other", () => {});
    worker.task("count", (number: number) => {
      if (number === 2) {
        throw new Failure("enough");
      }
      return number;
    });
    await whileRunning(worker, () => fake.claimPending.promise);
  });
  const next = { worker: "anna", functions: ["other", "count"], leaseMs: 30_000 };
  assert.deepEqual(fake.bodies("t-1/complete"), [{ token: "secret-1", result: 1, next }]);
  const error = { message: "enough", retryable: true };
  assert.deepEqual(fake.bodies("t-2/fail"), [{ token: "secret-2", error, next }]);
  // The worker claimed nothing while its slot was occupied.
  assert.deepEqual(fake.requestNames(), ["claim", "t-1/complete", "t-2/fail", "claim"]);
});

void test("the next task runs in the same slot", async () => {
  const fake = new FakeServer();
  fake.respond("claim", { tasks: [countTask(0), countTask(100)] });
  for (const first of [0, 100]) {
    for (let number = first; number < first + 9; number += 1) {
      fake.respond(`t-${number}/complete`, { task: `t-${number}`, next: countTask(number + 1) });
    }
  }
  const ended = deferred();
  const seen: number[] = [];
  let [running, maxRunning] = [0, 0];
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 3).task("count", async (number: number) => {
      running += 1;
      maxRunning = Math.max(maxRunning, running);
      seen.push(number);
      // The claim for the third slot.
      await fake.claimPending.promise;
      running -= 1;
      if (seen.length === 20) {
        ended.resolve();
      }
    });
    await whileRunning(worker, () => ended.promise);
  });
  const chain = (first: number) => seen.filter((number) => number >= first && number < first + 100);
  assert.deepEqual(chain(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(chain(100), [100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
  assert.equal(maxRunning, 2);
  // Each claim requested as many tasks as there were free slots.
  assert.deepEqual(fake.bodies("claim").map((body) => body["max"]), [3, 1]);
});

void test("a retried report requests the next task again", async () => {
  const [fake, ended] = [new FakeServer(), deferred()];
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", UNAVAILABLE, { task: "t-1", next: countTask(2) });
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 1);
    worker.task("count", (number: number) => number === 2 && ended.resolve());
    await whileRunning(worker, () => ended.promise);
  });
  assert.deepEqual(fake.bodies("t-1/complete").map((body) => "next" in body), [true, true]);
});

void test("a stopping worker requests no next task", async () => {
  const [fake, stop] = [new FakeServer(), new AbortController()];
  fake.respond("claim", { tasks: [countTask(1)] });
  await fake.whileServing(async (url) => {
    await newWorker(url, 2).task("count", () => stop.abort()).run({ signal: stop.signal });
  });
  assert.deepEqual(fake.bodies("t-1/complete"), [{ token: "secret-1", result: null }]);
});

void test("a worker whose claims are rejected requests no next task", async () => {
  const fake = new FakeServer();
  const rejected = { status: 401, code: "unauthenticated", detail: "no" };
  fake.respond("claim", { tasks: [countTask(1)] }, rejected);
  const completed = { task: "t-1", next: countTask(1) };
  fake.respond("t-1/complete", ...Array<object>(1_000).fill(completed));
  await fake.whileServing(async (url) => {
    await assert.rejects(newWorker(url, 2).task("count", () => {}).run(), { status: 401 });
  });
  const [name, body] = fake.requests.at(-1) ?? ["", {}];
  assert.ok(name === "t-1/release" || !("next" in body), name);
});

void test("a stopping worker releases a next task that still arrives", async () => {
  const [fake, stop] = [new FakeServer(), new AbortController()];
  const executed: number[] = [];
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", () => {
    stop.abort();
    return { task: "t-1", next: countTask(2) };
  });
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 2).task("count", (number: number) => executed.push(number));
    await worker.run({ signal: stop.signal });
  });
  assert.deepEqual(executed, [1]);
  assert.deepEqual(fake.reportNames(), ["t-1/complete", "t-2/release"]);
  assert.deepEqual(fake.bodies("t-2/release"), [{ token: "secret-2" }]);
});

void test("a stopping worker retries a report without requesting a next task", async () => {
  const [fake, stop] = [new FakeServer(), new AbortController()];
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", () => {
    stop.abort();
    return UNAVAILABLE;
  });
  await fake.whileServing(async (url) => {
    await newWorker(url, 2).task("count", () => {}).run({ signal: stop.signal });
  });
  assert.deepEqual(fake.bodies("t-1/complete").map((body) => "next" in body), [true, false]);
});

void test("a stopping worker finishes a next task that is in flight", async () => {
  const [fake, stop] = [new FakeServer(), new AbortController()];
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", { task: "t-1", next: countTask(2) });
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 2);
    worker.task("count", (number: number) => number === 2 && stop.abort());
    await worker.run({ signal: stop.signal });
  });
  assert.deepEqual(fake.reportNames(), ["t-1/complete", "t-2/complete"]);
  assert.deepEqual(fake.bodies("t-2/complete").map((body) => "next" in body), [false]);
});

void test("a next task is cancelled after the grace period", async () => {
  const fake = new FakeServer();
  const [stop, cancelled] = [new AbortController(), deferred<boolean>()];
  fake.respond("claim", { tasks: [countTask(1)] });
  fake.respond("t-1/complete", { task: "t-1", next: countTask(2) });
  await fake.whileServing(async (url) => {
    const worker = newWorker(url, 2, 0).task("count", async (number: number, { signal }) => {
      if (number === 2) {
        stop.abort();
        cancelled.resolve(await aborted(signal));
      }
    });
    await worker.run({ signal: stop.signal });
    assert.equal(await cancelled.promise, true);
  });
  assert.deepEqual(fake.reportNames(), ["t-1/complete"]);
});
