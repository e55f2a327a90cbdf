/**
 * Workers for Onward: functions that workflows call.
 *
 * ```ts
 * import { Worker } from "@onward/worker";
 *
 * const worker = new Worker();
 * worker.task("charge", async (order: { cents: number }) => ({ charged: order.cents }));
 * await worker.run();
 * ```
 *
 * @module
 */

export type { AccessOptions } from "./access.js";
export { Client, type ResultOptions, type StartOptions } from "./client.js";
export { ExecutionFailed, NotJson, OnwardError, Problem, TimedOut, Unreachable } from "./errors.js";
export type { Log } from "./log.js";
export type { Perform } from "./outcome.js";
export { Failure, type FailureOptions, type Task } from "./task.js";
export { Worker, type RunOptions, type WorkerOptions } from "./worker.js";
