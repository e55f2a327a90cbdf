/** How an attempt ended, in the form in which the server is told. */

import type { Log } from "./log.js";
import { Failure, type Task } from "./task.js";

/** A longer message says no more. */
const MESSAGE_CHARS_MAX = 10_000;

/** A function that performs tasks. */
export type Perform<Input = never, Result = unknown> = (input: Input, task: Task) => Result | Promise<Result>;

/** What to tell, and in which words. */
export type Outcome =
  | { verb: "complete"; body: { result: unknown } }
  | { verb: "fail"; body: { error: { message: string; code?: string; retryable: boolean } } };

/** The function returned. JSON has no `undefined`. */
export function completed(result: unknown): Outcome {
  return { verb: "complete", body: { result: result === undefined ? null : result } };
}

/** The function did not return, or what it returned cannot be told. */
export function failed(message: string, code: string | undefined, retryable: boolean): Outcome {
  const error = { message: wellFormed(message.slice(0, MESSAGE_CHARS_MAX)), retryable };
  return { verb: "fail", body: { error: code ? { ...error, code } : error } };
}

/** Has a task done. Whatever ends it is an outcome: what is not told would look like a lost worker. */
export async function perform(call: Perform, task: Task, log: Log): Promise<Outcome> {
  try {
    return completed(await call(task.input as never, task));
  } catch (error) {
    if (!(error instanceof Failure)) {
      const trace = error instanceof Error ? error.stack : error;
      log.warn(`${task.function}, attempt ${task.attempt} failed: ${trace}`);
    }
    return failedWith(error);
  }
}

/** What was thrown, as a failure. */
export function failedWith(error: unknown): Outcome {
  if (error instanceof Failure) {
    return failed(error.message, error.code, error.retryable);
  }
  if (!(error instanceof Error)) {
    return failed(String(error), undefined, true);
  }
  // A class of its own is a better name than the one it inherits.
  const name = error.name === "Error" ? error.constructor.name : error.name;
  return failed(error.message || name, name, true);
}

/** The text with a mark in place of halves of characters, which cannot be sent. */
function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}
