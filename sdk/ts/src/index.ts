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

export { Client, type ResultOptions, type StartOptions } from "./client.js";
export {
  ExecutionFailed,
  NotJson,
  OnwardError,
  Problem,
  TimeoutError,
  Unreachable,
} from "./errors.js";
export type { Logger } from "./log.js";
export type { ConnectionOptions } from "./options.js";
export type { TaskFunction } from "./outcome.js";
export { Failure, type FailureOptions, type Task } from "./task.js";
export { Worker, type RunOptions, type WorkerOptions } from "./worker.js";
