/** Unit tests: backoff, problems, JSON, options, outcomes and leases. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { backoffMs, retryDelayMs, sleep } from "../src/backoff.js";
import { parseProblem } from "../src/errors.js";
import { decode, encode } from "../src/http.js";
import { ExecutionFailed, Failure, NotJson, Problem, Unreachable, Worker } from "../src/index.js";
import { Lease } from "../src/lease.js";
import { DEFAULT_SERVER, requestHeaders, serverUrl } from "../src/options.js";
import {
  completed,
  failed,
  failedWith,
  runTask,
  type Outcome,
  type TaskFunction,
} from "../src/outcome.js";
import { isInvalidContent, isRetryable } from "../src/report.js";
import type { TaskDocument } from "../src/task.js";
import { claimWaitMs } from "../src/worker.js";
import { silent } from "./scenario.js";

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

void test("a failed execution has a kind and a message", () => {
  const error = new ExecutionFailed("card_declined", "the bank declined the card");
  assert.deepEqual([error.kind, error.message], ["card_declined", "the bank declined the card"]);
  assert.equal(String(error), "ExecutionFailed: card_declined: the bank declined the card");
});

void test("backoff doubles up to its maximum", () => {
  const delays = [1, 2, 3, 7, 8, 1_000_000].map((failures) => backoffMs(failures, () => 0));
  assert.deepEqual(delays, [100, 200, 400, 6_400, 10_000, 10_000]);
});

void test("jitter subtracts up to half of the backoff", () => {
  assert.equal(backoffMs(1, () => 1), 50);
});

void test("retry after takes precedence over the backoff", () => {
  assert.equal(retryDelayMs(new Problem(503, "unavailable", "", 2_000), 1), 2_000);
  assert.equal(retryDelayMs(new Problem(503, "unavailable", "", 9_000_000), 1), 60_000);
  assert.equal(retryDelayMs(new Unreachable(""), 1, () => 0), 100);
});

void test("an aborted sleep ends immediately", async () => {
  await sleep(60_000, AbortSignal.abort());
  const stop = new AbortController();
  const slept = sleep(60_000, stop.signal);
  stop.abort();
  await slept;
});

void test("a problem document is parsed", () => {
  const texts = { type: "urn:x", title: "t", detail: "expired", code: "lease_lost" };
  const content = encode({ ...texts, status: 409 });
  const problem = parseProblem(409, null, content);
  assert.deepEqual([problem.status, problem.code, problem.detail], [409, "lease_lost", "expired"]);
  assert.equal(problem.message, "expired (409 lease_lost)");
  assert.equal(problem.isTransient, false);
});

void test("an error response of a proxy becomes a problem", () => {
  for (const content of ["<html>", "", "[1]", "null"]) {
    const problem = parseProblem(502, "3", content);
    const actual = [problem.code, problem.retryAfterMs, problem.isTransient];
    assert.deepEqual(actual, ["unknown", 3_000, true]);
  }
});

void test("retry after accepts only seconds", () => {
  for (const text of [null, "", "soon", "-1", "²", "Sun, 15 Nov 2026 12:00:00 GMT"]) {
    assert.equal(parseProblem(429, text, "").retryAfterMs, undefined);
  }
});

void test("transient errors are retryable and rejected content is not", () => {
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
  for (const [error, isTransient, isContent] of rows) {
    const actual = [isRetryable(error), isInvalidContent(error)];
    assert.deepEqual(actual, [isTransient, isContent], String(error));
  }
});

void test("a value that json cannot encode is rejected", () => {
  const cyclic: unknown[] = [];
  cyclic.push(cyclic);
  for (const value of [1n, cyclic]) {
    assert.throws(() => encode(value), NotJson);
  }
});

void test("a response that is not json counts as unreachable", () => {
  assert.throws(() => decode("<html>"), Unreachable);
});

void test("options default to the environment", () => {
  const before = { ...process.env };
  try {
    Object.assign(process.env, { ONWARD_SERVER: "http://onward:1/", ONWARD_TOKEN: "t" });
    assert.equal(serverUrl({}), "http://onward:1");
    assert.equal(requestHeaders({ token: "mine" })["authorization"], "Bearer mine");
    delete process.env["ONWARD_SERVER"];
    delete process.env["ONWARD_TOKEN"];
    assert.equal(serverUrl({}), DEFAULT_SERVER);
    assert.equal(requestHeaders({})["authorization"], undefined);
  } finally {
    process.env = before;
  }
});

void test("a given scope is sent as headers", () => {
  const headers = requestHeaders({ tenant: "acme", project: undefined });
  assert.deepEqual([headers["onward-tenant"], headers["onward-project"]], ["acme", undefined]);
});

void test("an invalid server url is rejected", () => {
  for (const server of ["localhost:7400", "ftp://onward", "http://"]) {
    assert.throws(() => serverUrl({ server }), TypeError, server);
  }
});

void test("each return value and exception becomes an outcome", async () => {
  class OutOfStock extends Error {}
  const { task } = new Lease(DOCUMENT, 0, 0);
  const thrower = (error: unknown) => () => {
    throw error;
  };
  const declined = new Failure("no", { code: "card_declined", retryable: false });
  const rows: [TaskFunction, Outcome][] = [
    [(order: { cents: number }) => order.cents, completed(5)],
    [() => {}, completed(null)],
    [thrower(declined), failed("no", "card_declined", false)],
    [thrower(new TypeError("x")), failed("x", "TypeError", true)],
    [thrower(new OutOfStock("x")), failed("x", "OutOfStock", true)],
  ];
  for (const [run, outcome] of rows) {
    assert.deepEqual(await runTask(run, task, silent), outcome);
  }
  assert.deepEqual(failedWith(new Error()), failed("Error", "Error", true));
  assert.deepEqual(failedWith("a string"), failed("a string", undefined, true));
});

void test("any failure message can be encoded", () => {
  const { body } = failed(`half \ud800 ${"x".repeat(100_000)}`, undefined, true);
  assert.ok(!("code" in (body as { error: object }).error));
  assert.match(encode(body), /half \ufffd /);
  assert.ok(encode(body).length < 11_000);
});

void test("a heartbeat is due after a third of the lease", () => {
  assert.equal(new Lease(DOCUMENT, 0, 0).nextHeartbeat(5_000), 15_000);
});

void test("a heartbeat is due when a task reaches its timeout", () => {
  const lease = new Lease({ ...DOCUMENT, timeoutMs: 4_000 }, 0, 1_000);
  assert.deepEqual([1_000, 5_000].map((now) => lease.nextHeartbeat(now)), [5_000, 15_000]);
});

void test("a lease counts from when it was requested", () => {
  const lease = new Lease(DOCUMENT, 5_000, 8_000);
  assert.equal(lease.expiresAt, 35_000);
  lease.renew(10_000);
  assert.equal(lease.expiresAt, 40_000);
});

void test("a claim waits for at most a third of the lease", () => {
  assert.deepEqual([1_000, 30_000, 600_000].map(claimWaitMs), [333, 10_000, 20_000]);
});

void test("a lost lease cancels the task and hides its token", () => {
  const lease = new Lease(DOCUMENT, 0, 0);
  lease.lose("reason");
  assert.ok(lease.lost && lease.task.signal.aborted && lease.finished.aborted);
  assert.ok(!JSON.stringify(lease.task).includes("secret"));
});

void test("invalid worker setups are rejected immediately", async () => {
  const worker = new Worker({ server: DEFAULT_SERVER });
  await assert.rejects(worker.run(), /no tasks registered/);
  worker.task("charge", () => {});
  assert.throws(() => worker.task("charge", () => {}), /task charge is already registered/);
  assert.throws(() => new Worker({ concurrency: 0 }), RangeError);
});
