/** How long a task is held, as far as this process knows, and keeping it held. */

import { sleep } from "./backoff.js";
import { isLost, OnwardError } from "./errors.js";
import type { Log } from "./log.js";
import type { Task, TaskDocument } from "./task.js";
import type { Tasks } from "./tasks.js";

/** An answer to a heartbeat may take as long, however short the lease is. */
const ANSWER_MS_MIN = 1_000;

/** The time for which a task is this worker's. Times are milliseconds of the monotonic clock. */
export class Lease {
  /** What the function sees. */
  readonly task: Task;
  /** What names the task, and proves that it is held. */
  readonly claim: TaskDocument;
  /** When it is gone, unless it is extended. */
  until: number;
  /** Whether the result is of no use. */
  lost = false;
  readonly #cancel = new AbortController();
  readonly #end = new AbortController();
  readonly #limit: number;

  constructor(claim: TaskDocument, asked: number, now: number) {
    this.claim = claim;
    // The server gave it after it was asked, and counts from then: it is never believed to be held for too long.
    this.until = asked + claim.leaseMs;
    this.#limit = now + (claim.timeoutMs ?? Infinity);
    this.task = {
      id: claim.task,
      function: claim.function,
      execution: claim.execution,
      promise: claim.promise,
      attempt: claim.attempt,
      input: claim.input,
      delivery: claim.delivery,
      timeoutMs: claim.timeoutMs,
      signal: this.#cancel.signal,
    };
  }

  /** Aborted when there is nothing to hold any more. */
  get ended(): AbortSignal {
    return this.#end.signal;
  }

  /** It is held for another lease since the server was asked; perhaps a little longer. */
  extend(asked: number): void {
    this.until = asked + this.claim.leaseMs;
  }

  /** When to ask again: after a third of the lease, so that two may fail; and when the task's time is over. */
  nextBeat(now: number): number {
    const due = now + this.claim.leaseMs / 3;
    return this.#limit > now ? Math.min(due, this.#limit) : due;
  }

  /** The function has ended. */
  end(): void {
    this.#end.abort();
  }

  /** Tells the function to stop. */
  cancel(why: string): void {
    this.#cancel.abort(new OnwardError(why));
  }

  /** It is not this worker's any more: the function is told to stop, and its result is dropped. */
  lose(why: string): void {
    this.lost = true;
    this.end();
    this.cancel(why);
  }

  toString(): string {
    return `${this.claim.function}, attempt ${this.claim.attempt}`;
  }
}

/** Keeps a lease until the function has ended, or it is lost. */
export async function keep(tasks: Tasks, lease: Lease, log: Log): Promise<void> {
  do {
    const now = performance.now();
    await sleep(lease.nextBeat(now) - now, lease.ended);
  } while (!lease.ended.aborted && (await beat(tasks, lease, log)));
}

/** Asks for another lease. Says whether to ask again later. */
async function beat(tasks: Tasks, lease: Lease, log: Log): Promise<boolean> {
  const asked = performance.now();
  try {
    await tasks.heartbeat(lease.claim, Math.max(lease.claim.leaseMs / 3, ANSWER_MS_MIN));
    lease.extend(asked);
    return true;
  } catch (error) {
    if (lease.ended.aborted) {
      return false;
    }
    if (isLost(error)) {
      log.warn(`${lease}: not held any more, so it is told to stop`);
      lease.lose("the task is not held any more");
      return false;
    }
    log.warn(`${lease}: a heartbeat failed: ${error}`);
  }
  if (performance.now() < lease.until) {
    return true;
  }
  // Nobody said that it is lost, so its result is offered all the same; but somebody else may be at work by now.
  log.warn(`${lease}: the lease ran out, so it is told to stop`);
  lease.cancel("the lease ran out");
  return false;
}
