/** The worker protocol: claim, heartbeat, complete, fail and release. */

import { RESPONSE_TIMEOUT_MS, type HttpClient } from "./http.js";
import type { Outcome } from "./outcome.js";
import type { TaskDocument } from "./task.js";

/** Request for one task that is available immediately, sent with the report of another. */
export interface NextTaskRequest {
  worker: string;
  functions: string[];
  leaseMs: number;
}

/** Request for up to `max` tasks, held by the server for up to `waitMs`. */
export interface ClaimRequest extends NextTaskRequest {
  max: number;
  waitMs: number;
}

/** The id of a task and its claim token. */
export type Claim = Pick<TaskDocument, "task" | "token">;

/** Sends the requests of the worker protocol. */
export class TaskClient {
  readonly #http: HttpClient;

  constructor(http: HttpClient) {
    this.#http = http;
  }

  /** Claims up to `max` tasks; returns none if none arrived within `waitMs`. */
  async claim(request: ClaimRequest, signal?: AbortSignal): Promise<TaskDocument[]> {
    const options = { waitMs: request.waitMs, ...(signal && { signal }) };
    const response = await this.#http.request("POST", "/v1/tasks/claim", request, options);
    return (response as { tasks: TaskDocument[] }).tasks;
  }

  /** Renews the lease of a task. */
  async heartbeat(claim: Claim, responseTimeoutMs = RESPONSE_TIMEOUT_MS): Promise<void> {
    await this.#post(claim, "heartbeat", {}, responseTimeoutMs);
  }

  /** Reports the outcome of a task. Returns the next task if one was requested and claimed. */
  async report(
    claim: Claim,
    outcome: Outcome,
    next?: NextTaskRequest,
  ): Promise<TaskDocument | undefined> {
    const body = { ...outcome.body, ...(next && { next }) };
    const response = await this.#post(claim, outcome.operation, body);
    return (response as { next?: TaskDocument }).next;
  }

  /** Releases a task that was not started. */
  async release(claim: Claim): Promise<void> {
    await this.#post(claim, "release", {});
  }

  #post(
    { task, token }: Claim,
    operation: string,
    body: object,
    responseTimeoutMs = RESPONSE_TIMEOUT_MS,
  ): Promise<unknown> {
    const path = `/v1/tasks/${encodeURIComponent(task)}/${operation}`;
    return this.#http.request("POST", path, { token, ...body }, { responseTimeoutMs });
  }
}
