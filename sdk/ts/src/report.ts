/** Telling the server how a task ended, also when the server does not hear at once. */

import { sleep, waitMs } from "./backoff.js";
import { isLost, NotJson, Problem, Unreachable } from "./errors.js";
import { Lease } from "./lease.js";
import type { Log } from "./log.js";
import { failed, type Outcome } from "./outcome.js";
import type { Next, Tasks } from "./tasks.js";

/** Answers that are about what was told: telling the same again gives the same answer. */
const CONTENT_STATUSES = [400, 413, 422];

/** To whom it is told how tasks end, and what is asked for then. */
export interface Telling {
  tasks: Tasks;
  log: Log;
  /** What is wanted next: nothing by a worker that stops. */
  wanted: () => Next | undefined;
}

/**
 * Tells how a task ended, again and again until the server has heard it or the lease is gone.
 *
 * Returns the task that came with the answer, if one is wanted and there is one.
 */
export async function report(telling: Telling, lease: Lease, outcome: Outcome): Promise<Lease | undefined> {
  const { tasks, log, wanted } = telling;
  let failures = 0;
  for (;;) {
    const asked = performance.now();
    try {
      const following = await tasks.tell(lease.claim, outcome, wanted());
      return following && new Lease(following, asked, performance.now());
    } catch (error) {
      if (isContent(error) && outcome.verb === "complete") {
        log.error(`${lease}: its result is not taken: ${error}`);
        outcome = refused(error);
        continue;
      }
      if (!mayPass(error)) {
        logEnd(lease, error, failures, log);
        return undefined;
      }
      failures += 1;
      const wait = waitMs(error, failures);
      if (lease.lost || performance.now() + wait >= lease.until) {
        log.error(`${lease}: its end could not be told before the lease ran out: ${error}`);
        return undefined;
      }
      log.warn(`${lease}: its end could not be told, again in ${wait} ms: ${error}`);
      await sleep(wait);
    }
  }
}

/** Gives a task back that was not begun, so that nobody has to wait until its lease is gone. */
export async function giveBack({ tasks, log }: Telling, lease: Lease): Promise<void> {
  try {
    await tasks.release(lease.claim);
  } catch (error) {
    log.warn(`${lease}: could not be given back, so its lease runs out: ${error}`);
  }
}

/** A result that cannot be told is a failure, for good: the next attempt would return the same. */
function refused(error: unknown): Outcome {
  const code = error instanceof Problem ? error.code : "invalid_payload";
  return failed(`the result is not taken: ${(error as Error).message}`, code, false);
}

/** Says why nothing more is told. */
function logEnd(lease: Lease, error: unknown, failures: number, log: Log): void {
  if (!isLost(error)) {
    log.error(`${lease}: its end cannot be told: ${error}`);
  } else if (failures > 0) {
    log.info(`${lease}: not held any more; perhaps an earlier try to tell its end was heard`);
  } else {
    log.warn(`${lease}: not held any more, so what it came to is dropped`);
  }
}

/** Whether what was told is the trouble. */
export function isContent(error: unknown): boolean {
  return error instanceof NotJson || (error instanceof Problem && CONTENT_STATUSES.includes(error.status));
}

/** Whether telling the same again may help. */
export function mayPass(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && error.isTransient);
}
