/** Runs the function of a task and builds the report of its outcome. */

import type { Logger } from "./log.js";
import { Failure, type Task } from "./task.js";

/** Longer failure messages are truncated. */
const MAX_MESSAGE_CHARS = 10_000;

/** A function that executes tasks. */
export type TaskFunction<Input = never, Result = unknown> = (
  input: Input,
  task: Task,
) => Result | Promise<Result>;

/** The operation that reports the outcome of an attempt, and its request body. */
export type Outcome =
  | { operation: "complete"; body: { result: unknown } }
  | {
      operation: "fail";
      body: { error: { message: string; code?: string; retryable: boolean } };
    };

/** The outcome of a function that returned. JSON has no `undefined`, so it becomes `null`. */
export function completed(result: unknown): Outcome {
  return { operation: "complete", body: { result: result === undefined ? null : result } };
}

/** The outcome of a function that failed, or whose result cannot be reported. */
export function failed(message: string, code: string | undefined, retryable: boolean): Outcome {
  const error = { message: toWellFormed(message.slice(0, MAX_MESSAGE_CHARS)), retryable };
  return { operation: "fail", body: { error: code ? { ...error, code } : error } };
}

/**
 * Runs the function of a task. Everything that it throws becomes a failure: without a report, the
 * server would treat the worker as lost.
 */
export async function runTask(run: TaskFunction, task: Task, log: Logger): Promise<Outcome> {
  try {
    return completed(await run(task.input as never, task));
  } catch (error) {
    if (!(error instanceof Failure)) {
      const trace = error instanceof Error ? error.stack : error;
      log.warn(`${task.function}, attempt ${task.attempt}: failed: ${trace}`);
    }
    return failedWith(error);
  }
}

/** The outcome of a function that threw this value. */
export function failedWith(error: unknown): Outcome {
  if (error instanceof Failure) {
    return failed(error.message, error.code, error.retryable);
  }
  if (!(error instanceof Error)) {
    return failed(String(error), undefined, true);
  }
  // A subclass that sets no `name` inherits "Error"; the name of its class is more specific.
  const name = error.name === "Error" ? error.constructor.name : error.name;
  return failed(error.message || name, name, true);
}

/** Replaces lone surrogates, which UTF-8 cannot encode. */
function toWellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}
