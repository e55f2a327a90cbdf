/** Requests to a server. `fetch` keeps connections by itself. */

import { headersOf, serverOf, type AccessOptions } from "./access.js";
import { NotJson, OnwardError, problemOf, Unreachable } from "./errors.js";

/** How long an answer may take, besides what the server was asked to wait. */
export const ANSWER_MS = 30_000;

/** How long to wait for an answer. */
export interface Patience {
  /** How long the server was asked to wait. */
  waitMs?: number;
  /** How long an answer may take besides. */
  answerMs?: number;
  /** Breaks the request off. */
  signal?: AbortSignal;
}

/** A server. */
export class Server {
  /** Its URL. */
  readonly url: string;
  readonly #headers: Record<string, string>;

  constructor(options: AccessOptions) {
    this.url = serverOf(options);
    this.#headers = headersOf(options);
  }

  /**
   * Asks, and returns the document that answers.
   *
   * Throws `Problem` for any other answer, `Unreachable` for none, and `NotJson` if the body cannot be sent.
   */
  async ask(method: string, path: string, body?: unknown, patience: Patience = {}): Promise<unknown> {
    const content = body === undefined ? null : encode(body);
    const { signal } = patience;
    const stop = new AbortController();
    const end = () => stop.abort(new OnwardError("the request was broken off"));
    const late = () => stop.abort(new OnwardError("no answer in time"));
    const timer = setTimeout(late, (patience.waitMs ?? 0) + (patience.answerMs ?? ANSWER_MS));
    signal?.addEventListener("abort", end);
    try {
      signal?.throwIfAborted();
      const request = { method, headers: this.#headers, body: content, signal: stop.signal };
      const response = await fetch(this.url + path, request);
      const answer = await response.text();
      if (response.ok) {
        return decode(answer);
      }
      throw problemOf(response.status, response.headers.get("retry-after"), answer);
    } catch (error) {
      throw error instanceof OnwardError && !stop.signal.aborted ? error : this.#unreached(error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }

  #unreached(error: unknown): Unreachable {
    // fetch says only that it failed; the reason is what it was caused by.
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const code = (cause as NodeJS.ErrnoException | undefined)?.code;
    const reason = cause instanceof Error ? cause.message || code : cause;
    return new Unreachable(`${this.url} does not answer: ${reason}`, { cause: error });
  }
}

/** JSON as the server reads it. */
export function encode(body: unknown): string {
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw new NotJson(`it cannot be written as JSON: ${(error as Error).message}`, { cause: error });
  }
}

/** What the server answered. Something between may have answered in its place. */
export function decode(answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch (error) {
    throw new Unreachable("the answer is not one of Onward", { cause: error });
  }
}
