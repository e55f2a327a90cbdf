/** Errors of this package. Callers distinguish them by type and `code`, never by message text. */

/** The problem code for a claim token that is no longer valid. */
export const LEASE_LOST = "lease_lost";

/** Base class of the errors that this package throws. */
export class OnwardError extends Error {
  override name = "OnwardError";
}

/**
 * The server sent no response, or the response is not JSON. It is unknown whether the server
 * executed the request.
 */
export class Unreachable extends OnwardError {
  override name = "Unreachable";
}

/** A value cannot be encoded as JSON. */
export class NotJson extends OnwardError {
  override name = "NotJson";
}

/** An execution was still running at the deadline of the caller. */
export class TimeoutError extends OnwardError {
  override name = "TimeoutError";
}

/** An execution failed or was cancelled; `message` describes the failure. */
export class ExecutionFailed extends OnwardError {
  override name = "ExecutionFailed";
  /** The error kind: a code such as `card_declined`, or one of the engine, such as `cancelled`. */
  readonly kind: string;

  constructor(kind: string, message: string) {
    super(message);
    this.kind = kind;
  }

  override toString(): string {
    return `${this.name}: ${this.kind}: ${this.message}`;
  }
}

/** The server rejected the request with a problem document (RFC 9457). */
export class Problem extends OnwardError {
  override name = "Problem";
  /** The HTTP status. */
  readonly status: number;
  /** The problem code, which is stable between versions. */
  readonly code: string;
  /** Human-readable description of this occurrence. */
  readonly detail: string;
  /** The delay that the server requested with `Retry-After`, if any. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, code: string, detail: string, retryAfterMs?: number) {
    super(`${detail} (${status} ${code})`);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether a retry of the same request may succeed. */
  get isTransient(): boolean {
    return this.status === 429 || this.status >= 500;
  }
}

/** Whether the server rejected a request because the lease of the task is lost. */
export function isLeaseLost(error: unknown): boolean {
  return error instanceof Problem && error.code === LEASE_LOST;
}

/** Parses an error response. A proxy may have sent it, so it need not be a problem document. */
export function parseProblem(
  status: number,
  retryAfter: string | null,
  content: string,
): Problem {
  const document = parseObject(content);
  const text = (name: string) => (document[name] ? String(document[name]) : undefined);
  const detail = text("detail") ?? text("title") ?? "the response is not a problem document";
  return new Problem(status, text("code") ?? "unknown", detail, parseRetryAfterMs(retryAfter));
}

function parseObject(content: string): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(content);
    const isObject = typeof document === "object" && document !== null;
    return isObject ? (document as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Parses `Retry-After` in seconds; dates are ignored. */
function parseRetryAfterMs(text: string | null): number | undefined {
  return /^\s*\d+\s*$/.test(text ?? "") ? Number(text) * 1_000 : undefined;
}
