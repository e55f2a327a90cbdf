/** Delays between retries: exponential backoff with jitter, or the server's `Retry-After`. */

import { Problem } from "./errors.js";

const INITIAL_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 10_000;
const MAX_RETRY_AFTER_MS = 60_000;

/** Exponential backoff after consecutive failures; jitter subtracts up to half of the delay. */
export function backoffMs(failures: number, random: () => number = Math.random): number {
  const delay = Math.min(MAX_BACKOFF_MS, INITIAL_BACKOFF_MS * 2 ** (failures - 1));
  return Math.trunc(delay * (1 - random() / 2));
}

/** The delay before the next retry: `Retry-After` if the server sent one, else the backoff. */
export function retryDelayMs(
  error: unknown,
  failures: number,
  random: () => number = Math.random,
): number {
  if (error instanceof Problem && error.retryAfterMs !== undefined) {
    return Math.min(error.retryAfterMs, MAX_RETRY_AFTER_MS);
  }
  return backoffMs(failures, random);
}

/** Resolves after the delay, or as soon as the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal?.addEventListener("abort", finish);
  });
}
