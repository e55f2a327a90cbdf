/** Reports the outcome of a task to the server, with retries until the lease expires. */

import { retryDelayMs, sleep } from "./backoff.js";
import { isLeaseLost, NotJson, Problem, Unreachable } from "./errors.js";
import { Lease } from "./lease.js";
import type { Logger } from "./log.js";
import { failed, type Outcome } from "./outcome.js";
import type { NextTaskRequest, TaskClient } from "./task_client.js";

/** Statuses that reject the content of a report: a retry would be rejected again. */
const INVALID_CONTENT_STATUSES = [400, 413, 422];

/** What the reports of a worker have in common. */
export interface ReportContext {
  tasks: TaskClient;
  log: Logger;
  /** The request for the next task of the workflow; undefined if the worker is stopping. */
  nextRequest: () => NextTaskRequest | undefined;
}

/**
 * Reports the outcome of a task, and retries until the server has recorded it or the lease expires.
 *
 * Returns the next task of the workflow if it was requested and the response contains one.
 */
export async function reportOutcome(
  context: ReportContext,
  lease: Lease,
  outcome: Outcome,
): Promise<Lease | undefined> {
  const { tasks, log, nextRequest } = context;
  let failures = 0;
  for (;;) {
    const requestedAt = performance.now();
    try {
      const next = await tasks.report(lease.claim, outcome, nextRequest());
      return next && new Lease(next, requestedAt, performance.now());
    } catch (error) {
      if (isInvalidContent(error) && outcome.operation === "complete") {
        log.error(`${lease}: result rejected, reporting a failure instead: ${error}`);
        outcome = rejectedResult(error);
        continue;
      }
      if (!isRetryable(error)) {
        logDroppedOutcome(lease, error, failures, log);
        return undefined;
      }
      failures += 1;
      const delay = retryDelayMs(error, failures);
      if (lease.lost || performance.now() + delay >= lease.expiresAt) {
        log.error(`${lease}: outcome not reported before the lease expired: ${error}`);
        return undefined;
      }
      log.warn(`${lease}: report failed, retrying in ${delay} ms: ${error}`);
      await sleep(delay);
    }
  }
}

/** Releases a task that was not started, so that another worker need not wait for its lease. */
export async function releaseTask({ tasks, log }: ReportContext, lease: Lease): Promise<void> {
  try {
    await tasks.release(lease.claim);
  } catch (error) {
    log.warn(`${lease}: release failed, the task stays claimed until its lease expires: ${error}`);
  }
}

/** A non-retryable failure for a rejected result: the next attempt would return the same. */
function rejectedResult(error: unknown): Outcome {
  const code = error instanceof Problem ? error.code : "invalid_payload";
  return failed(`the result was rejected: ${(error as Error).message}`, code, false);
}

/** Logs why the outcome is not reported. */
function logDroppedOutcome(lease: Lease, error: unknown, failures: number, log: Logger): void {
  if (!isLeaseLost(error)) {
    log.error(`${lease}: outcome rejected, not retrying: ${error}`);
  } else if (failures > 0) {
    log.info(`${lease}: lease lost, or an earlier report was recorded without a response`);
  } else {
    log.warn(`${lease}: lease lost, dropping the outcome`);
  }
}

/** Whether the server, or the encoder, rejected the content of the report. */
export function isInvalidContent(error: unknown): boolean {
  return (
    error instanceof NotJson ||
    (error instanceof Problem && INVALID_CONTENT_STATUSES.includes(error.status))
  );
}

/** Whether a retry of the same request may succeed. */
export function isRetryable(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && error.isTransient);
}
