/** The server that the scenarios run against, and what they all need of it. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { sleep } from "../src/backoff.js";
import { Client, ExecutionFailed, Worker, type Log, type WorkerOptions } from "../src/index.js";
import { Server } from "../src/server.js";
import type { TaskDocument } from "../src/task.js";
import { Tasks, type Next } from "../src/tasks.js";

/** No scenario takes as long. */
export const LIMIT_MS = 60_000;

/** What workers log is expected here. */
export const silent: Log = { info: () => {}, warn: () => {}, error: () => {} };

/** A token with the role `worker`; `ONWARD_TOKEN` is used for everything if it is not set. */
const token = process.env["ONWARD_WORKER_TOKEN"];

const skip = process.env["ONWARD_SERVER"]
  ? false
  : "ONWARD_SERVER is not set: the scenarios need a server with examples/workflows/built/remote.wasm deployed";

/** The scenarios that there are. */
export const scenarios: string[] = [];

/** A scenario against a server. */
export function scenario(name: string, run: () => Promise<void>): void {
  scenarios.push(name);
  against(name, run);
}

/** A test against a server that is not one of the scenarios. */
export function against(name: string, run: () => Promise<void>): void {
  void test(name, { skip, timeout: 2 * LIMIT_MS }, run);
}

/** Starts and waits for workflows. */
export const client = new Client();

/** The bare requests, for a worker that does not behave. */
export const tasks = new Tasks(new Server({ token }));

/** A name that no other scenario uses, in whatever language. */
export function unique(name: string): string {
  return `${name}-${randomUUID()}`;
}

/** A worker without functions yet. */
export function newWorker(options: WorkerOptions = {}): Worker {
  return new Worker({ token, log: silent, ...options });
}

/** What is done while a worker works. */
export async function working<T>(worker: Worker, then: () => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const running = worker.run({ signal: stop.signal });
  try {
    return await then();
  } finally {
    stop.abort();
    await running;
  }
}

/** How a task is called: see `Errand` in examples/workflows/remote. */
export interface How {
  attempts?: number;
  wait_ms?: number;
  timeout_ms?: number;
}

/** Starts a workflow that calls the task. */
export function start(task: string, input: unknown = null, how: How = {}): Promise<string> {
  return client.start("relay", { task, input, ...how });
}

/** What an execution ends with. */
export function result(execution: string): Promise<unknown> {
  return client.result(execution, { timeoutMs: LIMIT_MS });
}

/** What a workflow that calls the task ends with. */
export async function relay(task: string, input: unknown = null, how: How = {}): Promise<unknown> {
  return result(await start(task, input, how));
}

/** What something fails with. */
export async function failure(failing: Promise<unknown>): Promise<{ kind: string; detail: string }> {
  const error: unknown = await failing.then(() => undefined, (error: unknown) => error);
  assert.ok(error instanceof ExecutionFailed, `it ended with ${error}`);
  return { kind: error.kind, detail: error.detail };
}

/** Claims one task of this name. */
export async function claim(name: string, leaseMs: number): Promise<TaskDocument> {
  const [claimed] = await tasks.claim({ ...next(name, leaseMs), max: 1, waitMs: LIMIT_MS });
  assert.ok(claimed, "there is no task");
  return claimed;
}

/** A wish for a task of this name. */
export function next(name: string, leaseMs: number): Next {
  return { worker: "a test", functions: [name], leaseMs };
}

/** Something that happens later. */
export function later<T = void>(): { happened: Promise<T>; happen: (value: T) => void } {
  let happen: (value: T) => void = () => {};
  const happened = new Promise<T>((resolve) => (happen = resolve));
  return { happened, happen };
}

/** Whether the signal was aborted within this time. */
export async function aborted(signal: AbortSignal, limitMs = LIMIT_MS): Promise<boolean> {
  await sleep(limitMs, signal);
  return signal.aborted;
}
