/** What goes wrong between this process and a server, told apart by type and code, never by text. */

/** The code of a server that no longer counts a task as this worker's. */
export const LEASE_LOST = "lease_lost";

/** Whatever this package throws by itself. */
export class OnwardError extends Error {
  override name = "OnwardError";
}

/** No answer came, or one that is not Onward's. Whether the request was carried out is not known. */
export class Unreachable extends OnwardError {
  override name = "Unreachable";
}

/** A value that cannot be written as JSON. */
export class NotJson extends OnwardError {
  override name = "NotJson";
}

/** An execution has not ended in time. */
export class TimedOut extends OnwardError {
  override name = "TimedOut";
}

/** An execution ended without a result. */
export class ExecutionFailed extends OnwardError {
  override name = "ExecutionFailed";
  /** What kind of error: a name such as `card_declined`, or one of the engine's, such as `cancelled`. */
  readonly kind: string;
  /** What happened, for people. */
  readonly detail: string;

  constructor(kind: string, detail: string) {
    super(`${kind}: ${detail}`);
    this.kind = kind;
    this.detail = detail;
  }
}

/** The server answered, and did not do what was asked (RFC 9457). */
export class Problem extends OnwardError {
  override name = "Problem";
  /** The HTTP status. */
  readonly status: number;
  /** What kind of problem; does not change between versions. */
  readonly code: string;
  /** What is the matter this time, for people. */
  readonly detail: string;
  /** How long the server wants to be left alone, if it says so. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, code: string, detail: string, retryAfterMs?: number) {
    super(`${detail} (${status} ${code})`);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether asking again may help. */
  get isTransient(): boolean {
    return this.status === 429 || this.status >= 500;
  }
}

/** Whether the server says that a task is not this worker's any more. */
export function isLost(error: unknown): boolean {
  return error instanceof Problem && error.code === LEASE_LOST;
}

/** The problem that an answer tells of. Something between here and the server may have written it. */
export function problemOf(status: number, retryAfter: string | null, content: string): Problem {
  const document = objectOf(content);
  const text = (name: string) => (document[name] ? String(document[name]) : undefined);
  const detail = text("detail") ?? text("title") ?? "an answer that is not Onward's";
  return new Problem(status, text("code") ?? "unknown", detail, retryAfterMs(retryAfter));
}

function objectOf(content: string): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(content);
    return typeof document === "object" && document !== null ? (document as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** What `Retry-After` says, if it says seconds. */
export function retryAfterMs(text: string | null): number | undefined {
  return /^\s*\d+\s*$/.test(text ?? "") ? Number(text) * 1_000 : undefined;
}
