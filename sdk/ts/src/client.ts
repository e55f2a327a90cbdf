/** Starting workflows, and waiting for them. */

import type { AccessOptions } from "./access.js";
import { sleep, waitMs } from "./backoff.js";
import { ExecutionFailed, TimedOut } from "./errors.js";
import { mayPass } from "./report.js";
import { Server } from "./server.js";

/** How long the server waits for a result at a time. */
const POLL_MS = 30_000;

/** How to start a workflow, or to send a signal. */
export interface StartOptions {
  /** With a key it can be repeated: the same key and input are the same. */
  key?: string;
}

/** How to wait for a result. */
export interface ResultOptions {
  /** How long to wait; for ever unless given. */
  timeoutMs?: number;
}

interface Outcome {
  result?: unknown;
  error?: { kind: string; message: string };
}

/** Starts workflows, tells them things and waits for their results. */
export class Client {
  readonly #server: Server;

  constructor(options: AccessOptions = {}) {
    this.#server = new Server(options);
  }

  /** Starts a workflow and returns the id of its execution. */
  async start(workflow: string, input: unknown = null, options: StartOptions = {}): Promise<string> {
    const body = { function: workflow, input, ...options };
    const started = await this.#server.ask("POST", "/v1/executions", body);
    return (started as { execution: string }).execution;
  }

  /**
   * Waits for the result of an execution, also while the server is away.
   *
   * Rejects with `ExecutionFailed` if it ended without one, and with `TimedOut` if it has not ended in time.
   */
  async result<Result = unknown>(execution: string, options: ResultOptions = {}): Promise<Result> {
    const until = performance.now() + (options.timeoutMs ?? Infinity);
    for (let failures = 0; ; ) {
      const left = Math.max(0, until - performance.now());
      try {
        const outcome = await this.#outcome(execution, Math.ceil(Math.min(left, POLL_MS)));
        if (outcome.error) {
          throw new ExecutionFailed(outcome.error.kind, outcome.error.message);
        }
        if ("result" in outcome) {
          return outcome.result as Result;
        }
        failures = 0;
      } catch (error) {
        failures += 1;
        const wait = waitMs(error, failures);
        if (!mayPass(error) || wait >= left) {
          throw error;
        }
        await sleep(wait);
        continue;
      }
      if (performance.now() >= until) {
        throw new TimedOut(`${execution} has not ended within ${options.timeoutMs} ms`);
      }
    }
  }

  /** Starts a workflow and waits for its result. */
  async call<Result = unknown>(
    workflow: string,
    input: unknown = null,
    options: StartOptions & ResultOptions = {},
  ): Promise<Result> {
    const { timeoutMs, ...start } = options;
    const execution = await this.start(workflow, input, start);
    return this.result<Result>(execution, timeoutMs === undefined ? {} : { timeoutMs });
  }

  /** Sends a signal to an execution. With a key it can be repeated, and arrives once. */
  async signal(execution: string, name: string, payload: unknown = null, options: StartOptions = {}): Promise<void> {
    await this.#server.ask("POST", `${pathOf(execution)}/signals`, { name, payload, ...options });
  }

  /** Asks an execution to stop. It may clean up first. */
  async cancel(execution: string, reason: string): Promise<void> {
    await this.#server.ask("POST", `${pathOf(execution)}/cancel`, { reason });
  }

  async #outcome(execution: string, waitMs: number): Promise<Outcome> {
    const path = `${pathOf(execution)}/result?waitMs=${waitMs}`;
    return (await this.#server.ask("GET", path, undefined, { waitMs })) as Outcome;
  }
}

function pathOf(execution: string): string {
  return `/v1/executions/${encodeURIComponent(execution)}`;
}
