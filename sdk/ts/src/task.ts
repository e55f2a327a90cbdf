/** What a function that performs tasks sees: the task, and how to fail. */

/** An attempt of a task, as this worker has claimed it. */
export interface Task {
  /** The attempt. */
  readonly id: string;
  /** The name by which the workflow called it. */
  readonly function: string;
  /** The execution that called it. */
  readonly execution: string;
  /** The call: the same for every attempt. Use it as the idempotency key of effects. */
  readonly promise: string;
  /** 1 for the first. */
  readonly attempt: number;
  /** What it was called with. */
  readonly input: unknown;
  /** How it is repeated when nobody knows how an attempt ended. */
  readonly delivery: "at-least-once" | "at-most-once";
  /** How long the attempt may take, if there is a limit. */
  readonly timeoutMs: number | undefined;
  /** Aborted when nobody wants the result any more: stop, and clean up. What is returned then is dropped. */
  readonly signal: AbortSignal;
}

/** A task as the server describes it. */
export interface TaskDocument {
  task: string;
  token: string;
  execution: string;
  promise: string;
  function: string;
  attempt: number;
  input: unknown;
  delivery: "at-least-once" | "at-most-once";
  leaseMs: number;
  timeoutMs?: number;
}

/** What is said about a failure besides its message. */
export interface FailureOptions {
  /** What kind of failure: the workflow, and its retry policy, go by it. */
  code?: string;
  /** False if trying again cannot help, whatever the retry policy says. */
  retryable?: boolean;
}

/** Thrown by a function to fail with a code of its own: `new Failure("card declined", { code: "card_declined" })`. */
export class Failure extends Error {
  override name = "Failure";
  /** What kind of failure: the workflow, and its retry policy, go by it. */
  readonly code: string | undefined;
  /** False if trying again cannot help, whatever the retry policy says. */
  readonly retryable: boolean;

  constructor(message: string, options: FailureOptions = {}) {
    super(message);
    this.code = options.code;
    this.retryable = options.retryable ?? true;
  }
}
