/** A worker: it claims tasks, has functions perform them, and tells how they ended. */

import { hostname } from "node:os";

import type { AccessOptions } from "./access.js";
import { sleep, waitMs } from "./backoff.js";
import { OnwardError, Problem } from "./errors.js";
import { keep, Lease } from "./lease.js";
import { usualLog, type Log } from "./log.js";
import { perform, type Perform } from "./outcome.js";
import { giveBack, report, type Telling } from "./report.js";
import { Server } from "./server.js";
import { Slots } from "./slots.js";
import { stopping } from "./stopping.js";
import type { TaskDocument } from "./task.js";
import { Tasks, type Next } from "./tasks.js";

/** How long the server waits for a task before it says that there is none, unless that is too long for the lease. */
const CLAIM_WAIT_MS = 20_000;

/** Answers to a claim that stay the same until somebody changes a setting. */
const FINAL_STATUSES = [401, 403, 404];

/** How a worker works. */
export interface WorkerOptions extends AccessOptions {
  /** What people see; host and process unless given. */
  name?: string;
  /** How many tasks it performs at a time; 8 unless given. */
  concurrency?: number;
  /** How long the server waits for a heartbeat before somebody else gets a task; 30 seconds unless given. */
  leaseMs?: number;
  /** How long a worker that stops waits for what it has begun; 30 seconds unless given. */
  graceMs?: number;
  /** Where it says what happens; warnings and errors go to standard error unless given. */
  log?: Log;
}

/** How long a worker works. */
export interface RunOptions {
  /** Stops the worker. Unless given, SIGINT and SIGTERM do. */
  signal?: AbortSignal;
}

/** Performs tasks that workflows call. */
export class Worker {
  readonly #server: Server;
  readonly #tasks: Tasks;
  readonly #slots: Slots;
  readonly #log: Log;
  readonly #name: string;
  readonly #leaseMs: number;
  readonly #graceMs: number;
  readonly #functions = new Map<string, Perform>();
  #ran = false;

  constructor(options: WorkerOptions = {}) {
    const concurrency = options.concurrency ?? 8;
    if (!(concurrency >= 1)) {
      throw new RangeError("a worker performs at least one task at a time");
    }
    this.#server = new Server(options);
    this.#tasks = new Tasks(this.#server);
    this.#slots = new Slots(concurrency);
    this.#log = options.log ?? usualLog;
    this.#name = options.name ?? `${hostname()}:${process.pid}`;
    this.#leaseMs = options.leaseMs ?? 30_000;
    this.#graceMs = options.graceMs ?? 30_000;
  }

  /**
   * Has a function perform the tasks of a name.
   *
   * It is called with the input and the task. What it returns is the result; what it throws is the failure.
   */
  task<Input, Result>(name: string, perform: Perform<Input, Result>): this {
    if (this.#functions.has(name)) {
      throw new TypeError(`${name} has a function already`);
    }
    this.#functions.set(name, perform as Perform);
    return this;
  }

  /**
   * Works until it is stopped; then finishes what it has begun.
   *
   * Rejects with `Problem` if the server will not have this worker: for want of a good token, for example. A second
   * SIGINT or SIGTERM ends the process as it would without a worker.
   */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.#functions.size === 0) {
      throw new TypeError("there is nothing to perform: give the worker a function with worker.task");
    }
    if (this.#ran) {
      throw new TypeError("a worker runs once: make another");
    }
    this.#ran = true;
    const stop = options.signal ? { signal: options.signal, release: () => {} } : stopping();
    const next = { worker: this.#name, functions: [...this.#functions.keys()], leaseMs: this.#leaseMs };
    // It stops by itself as well, if the server will not have it.
    let isOver = false;
    const wanted = () => (isOver || stop.signal.aborted ? undefined : next);
    this.#log.info(`worker ${next.worker} performs ${next.functions.join(", ")} for ${this.#server.url}`);
    try {
      await this.#claim(next, stop.signal, { tasks: this.#tasks, log: this.#log, wanted });
    } finally {
      isOver = true;
      stop.release();
      await this.#finish();
    }
  }

  async #claim(next: Next, stop: AbortSignal, telling: Telling): Promise<void> {
    let failures = 0;
    for (;;) {
      const max = await this.#slots.waitFree(stop);
      if (max === 0) {
        return;
      }
      const asked = performance.now();
      let claimed: TaskDocument[];
      try {
        claimed = await this.#tasks.claim({ ...next, max, waitMs: claimWaitMs(next.leaseMs) }, stop);
      } catch (error) {
        failures += 1;
        await this.#backOff(error, failures, stop);
        continue;
      }
      failures = 0;
      const now = performance.now();
      for (const claim of claimed) {
        this.#slots.put(new Lease(claim, asked, now), (lease) => this.#perform(lease, telling));
      }
    }
  }

  /** Waits until claiming may go well again. Throws what does not pass. */
  async #backOff(error: unknown, failures: number, stop: AbortSignal): Promise<void> {
    if (stop.aborted) {
      return;
    }
    if (!(error instanceof OnwardError)) {
      throw error;
    }
    if (error instanceof Problem && FINAL_STATUSES.includes(error.status)) {
      throw new Problem(error.status, error.code, `${this.#server.url} gives this worker no tasks: ${error.detail}`);
    }
    const wait = waitMs(error, failures);
    this.#log.warn(`no tasks could be claimed, again in ${wait} ms: ${error}`);
    await sleep(wait, stop);
  }

  /** Has a task performed, and tells how it ended. Returns the one that the server has for the same slot then. */
  async #perform(lease: Lease, telling: Telling): Promise<Lease | undefined> {
    void keep(this.#tasks, lease, this.#log);
    const call = this.#functions.get(lease.task.function) as Perform;
    const outcome = await perform(call, lease.task, this.#log);
    lease.end();
    if (lease.lost) {
      this.#log.info(`${lease}: what it came to is dropped`);
      return undefined;
    }
    const following = await report(telling, lease, outcome);
    if (following && !telling.wanted()) {
      await giveBack(telling, following);
      return undefined;
    }
    return following;
  }

  async #finish(): Promise<void> {
    for (const lease of await this.#slots.finish(this.#graceMs)) {
      this.#log.warn(`${lease}: left unfinished`);
      lease.lose("the worker has stopped");
    }
  }
}

/** How long a claim waits. As a lease is counted from when it was asked for, most of it must be left by then. */
export function claimWaitMs(leaseMs: number): number {
  return Math.min(CLAIM_WAIT_MS, Math.trunc(leaseMs / 3));
}
