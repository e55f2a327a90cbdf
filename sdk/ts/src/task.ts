/** The task that a function receives, and the failure that it may throw. */

/** One attempt of a task, claimed by this worker. */
export interface Task {
  /** Id of the attempt. */
  readonly id: string;
  /** The name by which the workflow calls the function. */
  readonly function: string;
  /** Id of the execution that called it. */
  readonly execution: string;
  /** Id of the call, equal for every attempt: use it as the idempotency key of side effects. */
  readonly promise: string;
  /** Number of the attempt, starting at 1. */
  readonly attempt: number;
  /** The input of the call. */
  readonly input: unknown;
  /** Whether the task may be retried when the outcome of an attempt is unknown. */
  readonly delivery: "at-least-once" | "at-most-once";
  /** Timeout of the attempt, if the workflow set one. */
  readonly timeoutMs: number | undefined;
  /**
   * Aborted when the result is no longer needed: the execution was cancelled, the timeout has
   * passed, or the lease is lost. The function should stop and clean up; its result is dropped.
   */
  readonly signal: AbortSignal;
}

/** A claimed task as the server sends it. */
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

/** Properties of a failure besides its message. */
export interface FailureOptions {
  /** Error code: the workflow receives it as the error kind, and its retry policy can match it. */
  code?: string;
  /** False if a retry cannot succeed; overrides the retry policy. Default: true. */
  retryable?: boolean;
}

/** Thrown by a function to fail with a code: `new Failure("no", { code: "card_declined" })`. */
export class Failure extends Error {
  override name = "Failure";
  /** Error code: the workflow receives it as the error kind, and its retry policy can match it. */
  readonly code: string | undefined;
  /** False if a retry cannot succeed; overrides the retry policy. */
  readonly retryable: boolean;

  constructor(message: string, options: FailureOptions = {}) {
    super(message);
    this.code = options.code;
    this.retryable = options.retryable ?? true;
  }
}
