/** Client for workflows: starts executions, signals and cancels them, and waits for results. */

import { retryDelayMs, sleep } from "./backoff.js";
import { ExecutionFailed, TimeoutError } from "./errors.js";
import { HttpClient } from "./http.js";
import type { ConnectionOptions } from "./options.js";
import { isRetryable } from "./report.js";

/** Maximum time that one request waits for a result on the server (long polling). */
const POLL_MS = 30_000;

/** How to start a workflow, or to send a signal. */
export interface StartOptions {
  /** Idempotency key: a request that is repeated with the same key has no further effect. */
  key?: string;
}

/** How to wait for a result. */
export interface ResultOptions {
  /** How long to wait for the result; default: no limit. */
  timeoutMs?: number;
}

interface ResultDocument {
  result?: unknown;
  error?: { kind: string; message: string };
}

/** Starts workflows, signals and cancels them, and waits for their results. */
export class Client {
  readonly #http: HttpClient;

  constructor(options: ConnectionOptions = {}) {
    this.#http = new HttpClient(options);
  }

  /** Starts a workflow and returns the id of its execution. */
  async start(
    workflow: string,
    input: unknown = null,
    options: StartOptions = {},
  ): Promise<string> {
    const body = { function: workflow, input, ...options };
    const started = await this.#http.request("POST", "/v1/executions", body);
    return (started as { execution: string }).execution;
  }

  /**
   * Waits for the result of an execution. Retries while the server is unreachable.
   *
   * Rejects with `ExecutionFailed` if the execution failed or was cancelled, and with
   * `TimeoutError` if it is still running after `timeoutMs`.
   */
  async result<Result = unknown>(execution: string, options: ResultOptions = {}): Promise<Result> {
    const deadline = performance.now() + (options.timeoutMs ?? Infinity);
    for (let failures = 0; ; ) {
      const remaining = Math.max(0, deadline - performance.now());
      try {
        const document = await this.#poll(execution, Math.ceil(Math.min(remaining, POLL_MS)));
        if (document.error) {
          throw new ExecutionFailed(document.error.kind, document.error.message);
        }
        if ("result" in document) {
          return document.result as Result;
        }
        failures = 0;
      } catch (error) {
        failures += 1;
        const delay = retryDelayMs(error, failures);
        if (!isRetryable(error) || delay >= remaining) {
          throw error;
        }
        await sleep(delay);
        continue;
      }
      if (performance.now() >= deadline) {
        throw new TimeoutError(
          `execution ${execution} is still running after timeoutMs (${options.timeoutMs} ms)`,
        );
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

  /** Sends a signal to an execution. With a `key`, a repeated signal is delivered once. */
  async signal(
    execution: string,
    name: string,
    payload: unknown = null,
    options: StartOptions = {},
  ): Promise<void> {
    const body = { name, payload, ...options };
    await this.#http.request("POST", `${executionPath(execution)}/signals`, body);
  }

  /** Requests the cancellation of an execution. The workflow may run its compensations first. */
  async cancel(execution: string, reason: string): Promise<void> {
    await this.#http.request("POST", `${executionPath(execution)}/cancel`, { reason });
  }

  async #poll(execution: string, waitMs: number): Promise<ResultDocument> {
    const path = `${executionPath(execution)}/result?waitMs=${waitMs}`;
    return (await this.#http.request("GET", path, undefined, { waitMs })) as ResultDocument;
  }
}

function executionPath(execution: string): string {
  return `/v1/executions/${encodeURIComponent(execution)}`;
}
