/** The parts that need no server: what is decided, and what is written and read. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { headersOf, SERVER, serverOf } from "../src/access.js";
import { backoffMs, sleep, waitMs } from "../src/backoff.js";
import { problemOf } from "../src/errors.js";
import { Failure, NotJson, Problem, Unreachable, Worker } from "../src/index.js";
import { Lease } from "../src/lease.js";
import { completed, failed, failedWith, perform } from "../src/outcome.js";
import { isContent, mayPass } from "../src/report.js";
import { decode, encode } from "../src/server.js";
import type { TaskDocument } from "../src/task.js";
import { claimWaitMs } from "../src/worker.js";
import { silent } from "./against.js";

const DOCUMENT: TaskDocument = {
  task: "t-1",
  token: "secret",
  execution: "e",
  promise: "e.root.0",
  function: "charge",
  attempt: 2,
  input: { cents: 5 },
  delivery: "at-most-once",
  leaseMs: 30_000,
};

void test("waits double up to a limit", () => {
  const waits = [1, 2, 3, 7, 8, 1_000_000].map((failures) => backoffMs(failures, () => 0));
  assert.deepEqual(waits, [100, 200, 400, 6_400, 10_000, 10_000]);
});

void test("up to half of a wait is left out", () => {
  assert.equal(backoffMs(1, () => 1), 50);
});

void test("what the server wants counts more", () => {
  assert.equal(waitMs(new Problem(503, "unavailable", "", 2_000), 1), 2_000);
  assert.equal(waitMs(new Problem(503, "unavailable", "", 9_000_000), 1), 60_000);
  assert.equal(waitMs(new Unreachable(""), 1, () => 0), 100);
});

void test("a sleep ends when it is aborted", async () => {
  await sleep(60_000, AbortSignal.abort());
  const stop = new AbortController();
  const slept = sleep(60_000, stop.signal);
  stop.abort();
  await slept;
});

void test("a problem document is read", () => {
  const content = encode({ type: "urn:x", title: "t", status: 409, detail: "gone", code: "lease_lost" });
  const problem = problemOf(409, null, content);
  assert.deepEqual([problem.status, problem.code, problem.detail], [409, "lease_lost", "gone"]);
  assert.equal(problem.message, "gone (409 lease_lost)");
  assert.equal(problem.isTransient, false);
});

void test("what something between answers is a problem too", () => {
  for (const content of ["<html>", "", "[1]", "null"]) {
    const problem = problemOf(502, "3", content);
    assert.deepEqual([problem.code, problem.retryAfterMs, problem.isTransient], ["unknown", 3_000, true]);
  }
});

void test("only seconds are understood", () => {
  for (const text of [null, "", "soon", "-1", "²", "Sun, 15 Nov 2026 12:00:00 GMT"]) {
    assert.equal(problemOf(429, text, "").retryAfterMs, undefined);
  }
});

void test("what may pass is told again and what is wrong is told otherwise", () => {
  const rows: [Error, boolean, boolean][] = [
    [new Unreachable(""), true, false],
    [new Problem(429, "rate_limited", ""), true, false],
    [new Problem(503, "unavailable", ""), true, false],
    [new Problem(413, "too_large", ""), false, true],
    [new Problem(422, "unprocessable", ""), false, true],
    [new NotJson(""), false, true],
    [new Problem(409, "lease_lost", ""), false, false],
    [new Problem(401, "unauthenticated", ""), false, false],
  ];
  for (const [error, passes, content] of rows) {
    assert.deepEqual([mayPass(error), isContent(error)], [passes, content], String(error));
  }
});

void test("what is not json is not sent", () => {
  const round: unknown[] = [];
  round.push(round);
  for (const value of [1n, round]) {
    assert.throws(() => encode(value), NotJson);
  }
});

void test("an answer that is not json is no answer", () => {
  assert.throws(() => decode("<html>"), Unreachable);
});

void test("the environment fills in what is not given", () => {
  const before = { ...process.env };
  try {
    Object.assign(process.env, { ONWARD_SERVER: "http://onward:1/", ONWARD_TOKEN: "t" });
    assert.equal(serverOf({}), "http://onward:1");
    assert.equal(headersOf({ token: "mine" })["authorization"], "Bearer mine");
    delete process.env["ONWARD_SERVER"];
    delete process.env["ONWARD_TOKEN"];
    assert.equal(serverOf({}), SERVER);
    assert.equal(headersOf({})["authorization"], undefined);
  } finally {
    process.env = before;
  }
});

void test("a scope is told where it is given", () => {
  const headers = headersOf({ tenant: "acme", project: undefined });
  assert.deepEqual([headers["onward-tenant"], headers["onward-project"]], ["acme", undefined]);
});

void test("what is no url is refused", () => {
  for (const server of ["localhost:7400", "ftp://onward", "http://"]) {
    assert.throws(() => serverOf({ server }), TypeError, server);
  }
});

void test("what a function does is an outcome", async () => {
  class OutOfStock extends Error {}
  const { task } = new Lease(DOCUMENT, 0, 0);
  const thrower = (error: unknown) => () => {
    throw error;
  };
  assert.deepEqual(await perform((order: { cents: number }) => order.cents, task, silent), completed(5));
  assert.deepEqual(await perform(() => {}, task, silent), completed(null));
  const refusal = new Failure("no", { code: "card_declined", retryable: false });
  assert.deepEqual(await perform(thrower(refusal), task, silent), failed("no", "card_declined", false));
  assert.deepEqual(await perform(thrower(new TypeError("x")), task, silent), failed("x", "TypeError", true));
  assert.deepEqual(await perform(thrower(new OutOfStock("x")), task, silent), failed("x", "OutOfStock", true));
  assert.deepEqual(failedWith(new Error()), failed("Error", "Error", true));
  assert.deepEqual(failedWith("just words"), failed("just words", undefined, true));
});

void test("any message can be sent", () => {
  const { body } = failed(`half \ud800 ${"x".repeat(100_000)}`, undefined, true);
  assert.ok(!("code" in (body as { error: object }).error));
  assert.match(encode(body), /half \ufffd /);
  assert.ok(encode(body).length < 11_000);
});

void test("a heartbeat is due after a third of the lease", () => {
  assert.equal(new Lease(DOCUMENT, 0, 0).nextBeat(5_000), 15_000);
});

void test("a heartbeat is due when the time of a task is over", () => {
  const lease = new Lease({ ...DOCUMENT, timeoutMs: 4_000 }, 0, 1_000);
  assert.deepEqual([1_000, 5_000].map((now) => lease.nextBeat(now)), [5_000, 15_000]);
});

void test("a lease lasts from when it was asked for", () => {
  const lease = new Lease(DOCUMENT, 5_000, 8_000);
  assert.equal(lease.until, 35_000);
  lease.extend(10_000);
  assert.equal(lease.until, 40_000);
});

void test("most of a lease is left when a claim has waited", () => {
  assert.deepEqual([1_000, 30_000, 600_000].map(claimWaitMs), [333, 10_000, 20_000]);
});

void test("a lost lease tells the function", () => {
  const lease = new Lease(DOCUMENT, 0, 0);
  lease.lose("why");
  assert.ok(lease.lost && lease.task.signal.aborted && lease.ended.aborted);
  assert.ok(!JSON.stringify(lease.task).includes("secret"));
});

void test("what cannot work is told at once", async () => {
  const worker = new Worker({ server: SERVER });
  await assert.rejects(worker.run(), /nothing to perform/);
  worker.task("charge", () => {});
  assert.throws(() => worker.task("charge", () => {}), /charge has a function already/);
  assert.throws(() => new Worker({ concurrency: 0 }), RangeError);
});
