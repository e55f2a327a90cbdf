/** The worker: claims tasks, runs their functions, and reports the outcomes. */

import { hostname } from "node:os";

import { retryDelayMs, sleep } from "./backoff.js";
import { OnwardError, Problem } from "./errors.js";
import { HttpClient } from "./http.js";
import { heartbeatUntilFinished, Lease } from "./lease.js";
import { defaultLogger, type Logger } from "./log.js";
import type { ConnectionOptions } from "./options.js";
import { runTask, type TaskFunction } from "./outcome.js";
import { releaseTask, reportOutcome, type ReportContext } from "./report.js";
import { abortOnSignals } from "./signals.js";
import { Slots } from "./slots.js";
import type { TaskDocument } from "./task.js";
import { TaskClient, type NextTaskRequest } from "./task_client.js";

/** Maximum time that a claim waits on the server; a short lease shortens it. */
const MAX_CLAIM_WAIT_MS = 20_000;

/** Responses to a claim that no retry changes: the configuration must change first. */
const PERMANENT_STATUSES = [401, 403, 404];

/** Options of a worker. */
export interface WorkerOptions extends ConnectionOptions {
  /** Name of the worker in listings; default: host name and process id. */
  name?: string;
  /** Maximum number of tasks in flight; default: 8. */
  concurrency?: number;
  /** Lease of a task: without a heartbeat for this time it is reassigned. Default: 30000. */
  leaseMs?: number;
  /** How long a stopping worker waits for the tasks in flight. Default: 30000. */
  graceMs?: number;
  /** Receives log messages; default: warnings and errors go to standard error. */
  log?: Logger;
}

/** Options of `Worker.run`. */
export interface RunOptions {
  /** Stops the worker when it is aborted; default: SIGINT and SIGTERM stop the worker. */
  signal?: AbortSignal;
}

/** Executes tasks that workflows call. */
export class Worker {
  readonly #http: HttpClient;
  readonly #tasks: TaskClient;
  readonly #slots: Slots;
  readonly #log: Logger;
  readonly #name: string;
  readonly #leaseMs: number;
  readonly #graceMs: number;
  readonly #functions = new Map<string, TaskFunction>();
  #hasRun = false;

  constructor(options: WorkerOptions = {}) {
    const concurrency = options.concurrency ?? 8;
    if (!(concurrency >= 1)) {
      throw new RangeError(`invalid concurrency ${concurrency}: must be at least 1`);
    }
    this.#http = new HttpClient(options);
    this.#tasks = new TaskClient(this.#http);
    this.#slots = new Slots(concurrency);
    this.#log = options.log ?? defaultLogger;
    this.#name = options.name ?? `${hostname()}:${process.pid}`;
    this.#leaseMs = options.leaseMs ?? 30_000;
    this.#graceMs = options.graceMs ?? 30_000;
  }

  /**
   * Registers the function that executes the tasks of a name.
   *
   * It receives the input and the task. Its return value is the result; what it throws is the
   * failure.
   */
  task<Input, Result>(name: string, run: TaskFunction<Input, Result>): this {
    if (this.#functions.has(name)) {
      throw new TypeError(`task ${name} is already registered: each name takes one function`);
    }
    this.#functions.set(name, run as TaskFunction);
    return this;
  }

  /**
   * Claims and executes tasks until the worker is stopped, then finishes the tasks in flight.
   *
   * Rejects with `Problem` if the server rejects the claims permanently, for example because the
   * token is invalid. A second SIGINT or SIGTERM ends the process immediately.
   */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.#functions.size === 0) {
      throw new TypeError("no tasks registered: register a function with worker.task before run");
    }
    if (this.#hasRun) {
      throw new TypeError("the worker has already run: create a new Worker");
    }
    this.#hasRun = true;
    const stop = options.signal ? { signal: options.signal, release: () => {} } : abortOnSignals();
    const next = {
      worker: this.#name,
      functions: [...this.#functions.keys()],
      leaseMs: this.#leaseMs,
    };
    // The worker also stops when the server rejects its claims permanently.
    let isStopped = false;
    const nextRequest = () => (isStopped || stop.signal.aborted ? undefined : next);
    const functions = next.functions.join(", ");
    this.#log.info(`worker ${next.worker} executes ${functions} for ${this.#http.url}`);
    try {
      await this.#claim(next, stop.signal, { tasks: this.#tasks, log: this.#log, nextRequest });
    } finally {
      isStopped = true;
      stop.release();
      await this.#drain();
    }
  }

  async #claim(next: NextTaskRequest, stop: AbortSignal, context: ReportContext): Promise<void> {
    let failures = 0;
    for (;;) {
      const max = await this.#slots.waitForFree(stop);
      if (max === 0) {
        return;
      }
      const requestedAt = performance.now();
      let claimed: TaskDocument[];
      try {
        const request = { ...next, max, waitMs: claimWaitMs(next.leaseMs) };
        claimed = await this.#tasks.claim(request, stop);
      } catch (error) {
        failures += 1;
        await this.#backOff(error, failures, stop);
        continue;
      }
      failures = 0;
      const now = performance.now();
      for (const claim of claimed) {
        const lease = new Lease(claim, requestedAt, now);
        this.#slots.start(lease, (lease) => this.#execute(lease, context));
      }
    }
  }

  /** Waits before the next claim. Throws errors that no retry can resolve. */
  async #backOff(error: unknown, failures: number, stop: AbortSignal): Promise<void> {
    if (stop.aborted) {
      return;
    }
    if (!(error instanceof OnwardError)) {
      throw error;
    }
    if (error instanceof Problem && PERMANENT_STATUSES.includes(error.status)) {
      const detail = `claim rejected by ${this.#http.url}: ${error.detail}`;
      throw new Problem(error.status, error.code, detail);
    }
    const delay = retryDelayMs(error, failures);
    this.#log.warn(`claim failed, retrying in ${delay} ms: ${error}`);
    await sleep(delay, stop);
  }

  /** Runs a task and reports its outcome. Returns the next task for the same slot, if any. */
  async #execute(lease: Lease, context: ReportContext): Promise<Lease | undefined> {
    void heartbeatUntilFinished(this.#tasks, lease, this.#log);
    const run = this.#functions.get(lease.task.function) as TaskFunction;
    const outcome = await runTask(run, lease.task, this.#log);
    lease.finish();
    if (lease.lost) {
      this.#log.info(`${lease}: lease lost, dropping the outcome`);
      return undefined;
    }
    const next = await reportOutcome(context, lease, outcome);
    if (next && !context.nextRequest()) {
      await releaseTask(context, next);
      return undefined;
    }
    return next;
  }

  async #drain(): Promise<void> {
    for (const lease of await this.#slots.drain(this.#graceMs)) {
      const grace = `graceMs (${this.#graceMs} ms)`;
      this.#log.warn(`${lease}: unfinished after ${grace}, cancelling the task`);
      lease.lose("the worker has stopped");
    }
  }
}

/** How long a claim waits. The lease counts from the request, so most of it must remain then. */
export function claimWaitMs(leaseMs: number): number {
  return Math.min(MAX_CLAIM_WAIT_MS, Math.trunc(leaseMs / 3));
}
