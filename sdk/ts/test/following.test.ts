/** Tasks that come with the answer to how another ended, from a server that answers what a test wants. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Failure, Worker } from "../src/index.js";
import { aborted, later, silent, working } from "./against.js";
import { described, Fake } from "./fake.js";

const BUSY = { status: 503, code: "unavailable", detail: "busy" };

function newWorker(server: string, concurrency: number, graceMs = 30_000): Worker {
  return new Worker({ server, token: "t", name: "anna", concurrency, graceMs, log: silent });
}

void test("a report asks for the next task", async () => {
  const fake = new Fake();
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", { task: "t-1", next: described(2) });
  await fake.serving(async (url) => {
    const worker = newWorker(url, 1).task("other", () => {});
    worker.task("count", (number: number) => {
      if (number === 2) {
        throw new Failure("enough");
      }
      return number;
    });
    await working(worker, () => fake.claimWaits.happened);
  });
  const next = { worker: "anna", functions: ["other", "count"], leaseMs: 30_000 };
  assert.deepEqual(fake.bodies("t-1/complete"), [{ token: "secret-1", result: 1, next }]);
  const error = { message: "enough", retryable: true };
  assert.deepEqual(fake.bodies("t-2/fail"), [{ token: "secret-2", error, next }]);
  // Nothing was claimed while the slot was busy.
  assert.deepEqual(fake.names(), ["claim", "t-1/complete", "t-2/fail", "claim"]);
});

void test("a task that comes with the answer stays in the slot", async () => {
  const fake = new Fake();
  fake.answer("claim", { tasks: [described(0), described(100)] });
  for (const first of [0, 100]) {
    for (let number = first; number < first + 9; number += 1) {
      fake.answer(`t-${number}/complete`, { task: `t-${number}`, next: described(number + 1) });
    }
  }
  const ended = later();
  const seen: number[] = [];
  let [busy, most] = [0, 0];
  await fake.serving(async (url) => {
    const worker = newWorker(url, 3).task("count", async (number: number) => {
      busy += 1;
      most = Math.max(most, busy);
      seen.push(number);
      // The claim for the third slot.
      await fake.claimWaits.happened;
      busy -= 1;
      if (seen.length === 20) {
        ended.happen();
      }
    });
    await working(worker, () => ended.happened);
  });
  const numbers = (first: number) => seen.filter((number) => number >= first && number < first + 100);
  assert.deepEqual(numbers(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(numbers(100), [100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
  assert.equal(most, 2);
  // Only what was free was asked for.
  assert.deepEqual(fake.bodies("claim").map((body) => body["max"]), [3, 1]);
});

void test("a report that is repeated asks again", async () => {
  const [fake, ended] = [new Fake(), later()];
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", BUSY, { task: "t-1", next: described(2) });
  await fake.serving(async (url) => {
    const worker = newWorker(url, 1).task("count", (number: number) => number === 2 && ended.happen());
    await working(worker, () => ended.happened);
  });
  assert.deepEqual(fake.bodies("t-1/complete").map((body) => "next" in body), [true, true]);
});

void test("a worker that stops asks for nothing", async () => {
  const [fake, stop] = [new Fake(), new AbortController()];
  fake.answer("claim", { tasks: [described(1)] });
  await fake.serving(async (url) => {
    await newWorker(url, 2).task("count", () => stop.abort()).run({ signal: stop.signal });
  });
  assert.deepEqual(fake.bodies("t-1/complete"), [{ token: "secret-1", result: null }]);
});

void test("a worker that the server will not have asks for nothing more", async () => {
  const fake = new Fake();
  fake.answer("claim", { tasks: [described(1)] }, { status: 401, code: "unauthenticated", detail: "no" });
  fake.answer("t-1/complete", ...Array<object>(1_000).fill({ task: "t-1", next: described(1) }));
  await fake.serving(async (url) => {
    await assert.rejects(newWorker(url, 2).task("count", () => {}).run(), { status: 401 });
  });
  const [name, body] = fake.asked.at(-1) ?? ["", {}];
  assert.ok(name === "t-1/release" || !("next" in body), name);
});

void test("a task that comes when a worker stops is given back", async () => {
  const [fake, stop] = [new Fake(), new AbortController()];
  const performed: number[] = [];
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", () => {
    stop.abort();
    return { task: "t-1", next: described(2) };
  });
  await fake.serving(async (url) => {
    await newWorker(url, 2).task("count", (number: number) => performed.push(number)).run({ signal: stop.signal });
  });
  assert.deepEqual(performed, [1]);
  assert.deepEqual(fake.told(), ["t-1/complete", "t-2/release"]);
  assert.deepEqual(fake.bodies("t-2/release"), [{ token: "secret-2" }]);
});

void test("a report that is repeated when a worker stops asks for nothing", async () => {
  const [fake, stop] = [new Fake(), new AbortController()];
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", () => {
    stop.abort();
    return BUSY;
  });
  await fake.serving(async (url) => {
    await newWorker(url, 2).task("count", () => {}).run({ signal: stop.signal });
  });
  assert.deepEqual(fake.bodies("t-1/complete").map((body) => "next" in body), [true, false]);
});

void test("a task that has followed is finished by a worker that stops", async () => {
  const [fake, stop] = [new Fake(), new AbortController()];
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", { task: "t-1", next: described(2) });
  await fake.serving(async (url) => {
    const worker = newWorker(url, 2).task("count", (number: number) => number === 2 && stop.abort());
    await worker.run({ signal: stop.signal });
  });
  assert.deepEqual(fake.told(), ["t-1/complete", "t-2/complete"]);
  assert.deepEqual(fake.bodies("t-2/complete").map((body) => "next" in body), [false]);
});

void test("a task that has followed is left when patience is over", async () => {
  const [fake, stop, told] = [new Fake(), new AbortController(), later<boolean>()];
  fake.answer("claim", { tasks: [described(1)] });
  fake.answer("t-1/complete", { task: "t-1", next: described(2) });
  await fake.serving(async (url) => {
    const worker = newWorker(url, 2, 0).task("count", async (number: number, { signal }) => {
      if (number === 2) {
        stop.abort();
        told.happen(await aborted(signal));
      }
    });
    await worker.run({ signal: stop.signal });
    assert.equal(await told.happened, true);
  });
  assert.deepEqual(fake.told(), ["t-1/complete"]);
});
