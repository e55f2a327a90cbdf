/** HTTP requests to a server. `fetch` reuses connections. */

import { NotJson, OnwardError, parseProblem, Unreachable } from "./errors.js";
import { requestHeaders, serverUrl, type ConnectionOptions } from "./options.js";

/** Default time that a response may take, in addition to the wait on the server. */
export const RESPONSE_TIMEOUT_MS = 30_000;

/** Timeouts and cancellation of one request. */
export interface RequestOptions {
  /** How long the server may hold the request before it responds (long polling). Default: 0. */
  waitMs?: number;
  /** How long the response may take in addition. Default: 30000. */
  responseTimeoutMs?: number;
  /** Aborts the request. */
  signal?: AbortSignal;
}

/** Sends JSON requests to one server. */
export class HttpClient {
  /** The URL of the server. */
  readonly url: string;
  readonly #headers: Record<string, string>;

  constructor(options: ConnectionOptions) {
    this.url = serverUrl(options);
    this.#headers = requestHeaders(options);
  }

  /**
   * Sends a request and returns the JSON of the response.
   *
   * Rejects with `Problem` for an error response, with `Unreachable` for none or for one that is
   * not JSON, and with `NotJson` if the body cannot be encoded.
   */
  async request(
    method: string,
    path: string,
    body?: unknown,
    options: RequestOptions = {},
  ): Promise<unknown> {
    const content = body === undefined ? null : encode(body);
    const { signal, waitMs = 0, responseTimeoutMs = RESPONSE_TIMEOUT_MS } = options;
    const controller = new AbortController();
    const abort = () => controller.abort(new OnwardError("the request was aborted"));
    const timeOut = () => controller.abort(new OnwardError("the request timed out"));
    const timer = setTimeout(timeOut, waitMs + responseTimeoutMs);
    signal?.addEventListener("abort", abort);
    try {
      signal?.throwIfAborted();
      const response = await fetch(this.url + path, {
        method,
        headers: this.#headers,
        body: content,
        signal: controller.signal,
      });
      const text = await response.text();
      if (response.ok) {
        return decode(text);
      }
      throw parseProblem(response.status, response.headers.get("retry-after"), text);
    } catch (error) {
      const isOwn = error instanceof OnwardError && !controller.signal.aborted;
      throw isOwn ? error : this.#unreachable(error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  #unreachable(error: unknown): Unreachable {
    // The error of `fetch` names no reason; its cause does.
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const code = (cause as NodeJS.ErrnoException | undefined)?.code;
    const reason = cause instanceof Error ? cause.message || code : cause;
    return new Unreachable(`no response from ${this.url}: ${reason}`, { cause: error });
  }
}

/** Encodes a request body as JSON. */
export function encode(body: unknown): string {
  try {
    return JSON.stringify(body);
  } catch (error) {
    const reason = (error as Error).message;
    throw new NotJson(`the value cannot be encoded as JSON: ${reason}`, { cause: error });
  }
}

/** Decodes a response body. A proxy may have sent it, so it need not be JSON. */
export function decode(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Unreachable("the response is not JSON", { cause: error });
  }
}
