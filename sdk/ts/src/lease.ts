/** The lease of a claimed task, as this process computes it, and the heartbeats that renew it. */

import { sleep } from "./backoff.js";
import { isLeaseLost, OnwardError } from "./errors.js";
import type { Logger } from "./log.js";
import type { Task, TaskDocument } from "./task.js";
import type { TaskClient } from "./task_client.js";

/** Lower limit of the response timeout of a heartbeat, for short leases. */
const MIN_HEARTBEAT_TIMEOUT_MS = 1_000;

/** The lease of one task. Times are milliseconds of the monotonic clock. */
export class Lease {
  /** The task as its function receives it. */
  readonly task: Task;
  /** The claimed task, with its claim token. */
  readonly claim: TaskDocument;
  /** When the lease expires unless it is renewed. */
  expiresAt: number;
  /** Whether the server has given the task up: its outcome is not reported. */
  lost = false;
  readonly #cancelled = new AbortController();
  readonly #finished = new AbortController();
  readonly #taskDeadline: number;

  constructor(claim: TaskDocument, requestedAt: number, now: number) {
    this.claim = claim;
    // The server starts the lease after the request was sent, so this is never later than its end.
    this.expiresAt = requestedAt + claim.leaseMs;
    this.#taskDeadline = now + (claim.timeoutMs ?? Infinity);
    this.task = {
      id: claim.task,
      function: claim.function,
      execution: claim.execution,
      promise: claim.promise,
      attempt: claim.attempt,
      input: claim.input,
      delivery: claim.delivery,
      timeoutMs: claim.timeoutMs,
      signal: this.#cancelled.signal,
    };
  }

  /** Aborted when the lease needs no further heartbeats. */
  get finished(): AbortSignal {
    return this.#finished.signal;
  }

  /** Renews the lease, counted from when the heartbeat was sent. */
  renew(requestedAt: number): void {
    this.expiresAt = requestedAt + this.claim.leaseMs;
  }

  /**
   * When to send the next heartbeat: after a third of the lease, so that two heartbeats may fail;
   * and when the task reaches its timeout.
   */
  nextHeartbeat(now: number): number {
    const due = now + this.claim.leaseMs / 3;
    return this.#taskDeadline > now ? Math.min(due, this.#taskDeadline) : due;
  }

  /** Stops the heartbeats: the function has returned. */
  finish(): void {
    this.#finished.abort();
  }

  /** Aborts the signal of the task. */
  cancel(reason: string): void {
    this.#cancelled.abort(new OnwardError(reason));
  }

  /** Marks the lease as lost: cancels the task, and its outcome is not reported. */
  lose(reason: string): void {
    this.lost = true;
    this.finish();
    this.cancel(reason);
  }

  toString(): string {
    return `${this.claim.function}, attempt ${this.claim.attempt}`;
  }
}

/** Sends heartbeats until the function has returned or the lease is lost. */
export async function heartbeatUntilFinished(
  tasks: TaskClient,
  lease: Lease,
  log: Logger,
): Promise<void> {
  do {
    const now = performance.now();
    await sleep(lease.nextHeartbeat(now) - now, lease.finished);
  } while (!lease.finished.aborted && (await sendHeartbeat(tasks, lease, log)));
}

/** Sends one heartbeat. Returns whether to send another one later. */
async function sendHeartbeat(tasks: TaskClient, lease: Lease, log: Logger): Promise<boolean> {
  const requestedAt = performance.now();
  try {
    const timeoutMs = Math.max(lease.claim.leaseMs / 3, MIN_HEARTBEAT_TIMEOUT_MS);
    await tasks.heartbeat(lease.claim, timeoutMs);
    lease.renew(requestedAt);
    return true;
  } catch (error) {
    if (lease.finished.aborted) {
      return false;
    }
    if (isLeaseLost(error)) {
      log.warn(`${lease}: lease lost, cancelling the task`);
      lease.lose("the lease of the task is lost");
      return false;
    }
    log.warn(`${lease}: heartbeat failed: ${error}`);
  }
  if (performance.now() < lease.expiresAt) {
    return true;
  }
  // The server has not confirmed the loss, so the outcome is still reported; but another worker
  // may already hold the task.
  log.warn(`${lease}: lease expired without a successful heartbeat, cancelling the task`);
  lease.cancel("the lease of the task expired");
  return false;
}
