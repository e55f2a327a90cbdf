/** Helpers of the scenario tests: the server under test, a client, workers and raw requests. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { sleep } from "../src/backoff.js";
import { HttpClient } from "../src/http.js";
import { Client, ExecutionFailed, Worker, type Logger, type WorkerOptions } from "../src/index.js";
import type { TaskDocument } from "../src/task.js";
import { TaskClient, type NextTaskRequest } from "../src/task_client.js";

/** Upper limit of every wait in a scenario. */
export const TIMEOUT_MS = 60_000;

/** Discards the log messages of workers: the tests provoke warnings. */
export const silent: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/** A token with the role `worker`; default: `ONWARD_TOKEN`. */
const token = process.env["ONWARD_WORKER_TOKEN"];

const skip = process.env["ONWARD_SERVER"]
  ? false
  : "ONWARD_SERVER is not set: start a server, deploy examples/workflows/built/remote.wasm";

/** The names of the scenarios that this client implements. */
export const scenarios: string[] = [];

/** Defines a scenario of examples/workers/scenarios.txt. */
export function scenario(name: string, run: () => Promise<void>): void {
  scenarios.push(name);
  serverTest(name, run);
}

/** Defines a test that requires a server and is not one of the listed scenarios. */
export function serverTest(name: string, run: () => Promise<void>): void {
  void test(name, { skip, timeout: 2 * TIMEOUT_MS }, run);
}

/** Starts workflows and waits for their results. */
export const client = new Client();

/** Sends raw protocol requests, to simulate a worker that crashes or stalls. */
export const tasks = new TaskClient(new HttpClient({ token }));

/** Returns a name that no other scenario, in any language, uses. */
export function unique(name: string): string {
  return `${name}-${randomUUID()}`;
}

/** A worker without registered tasks. */
export function newWorker(options: WorkerOptions = {}): Worker {
  return new Worker({ token, log: silent, ...options });
}

/** Runs the worker while `body` runs, then stops it. */
export async function whileRunning<T>(worker: Worker, body: () => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal });
  try {
    return await body();
  } finally {
    stop.abort();
    await running;
  }
}

/** Options of the workflow `relay`: the other fields of `TaskCall` in examples/workflows/remote. */
export interface RelayOptions {
  max_attempts?: number;
  interval_ms?: number;
  timeout_ms?: number;
}

/** Starts a workflow that calls the task. */
export function start(
  task: string,
  input: unknown = null,
  options: RelayOptions = {},
): Promise<string> {
  return client.start("relay", { task, input, ...options });
}

/** Waits for the result of an execution. */
export function result(execution: string): Promise<unknown> {
  return client.result(execution, { timeoutMs: TIMEOUT_MS });
}

/** Starts a workflow that calls the task, and waits for its result. */
export async function relay(
  task: string,
  input: unknown = null,
  options: RelayOptions = {},
): Promise<unknown> {
  return result(await start(task, input, options));
}

/** Expects an execution to fail, and returns how. */
export async function failure(
  failing: Promise<unknown>,
): Promise<{ kind: string; message: string }> {
  const error: unknown = await failing.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(error instanceof ExecutionFailed, `expected ExecutionFailed, got ${error}`);
  return { kind: error.kind, message: error.message };
}

/** Claims one task of this name. */
export async function claim(name: string, leaseMs: number): Promise<TaskDocument> {
  const request = { ...nextTaskRequest(name, leaseMs), max: 1, waitMs: TIMEOUT_MS };
  const [claimed] = await tasks.claim(request);
  assert.ok(claimed, "no task was claimed");
  return claimed;
}

/** A request for a task of this name. */
export function nextTaskRequest(name: string, leaseMs: number): NextTaskRequest {
  return { worker: "a test", functions: [name], leaseMs };
}

/** A promise, and the function that resolves it. */
export function deferred<T = void>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve };
}

/** Waits until the signal is aborted; returns whether that happened within the limit. */
export async function aborted(signal: AbortSignal, limitMs = TIMEOUT_MS): Promise<boolean> {
  await sleep(limitMs, signal);
  return signal.aborted;
}
