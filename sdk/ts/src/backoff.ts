/** How long to wait before asking again. */

import { Problem } from "./errors.js";

const FIRST_MS = 100;
const LONGEST_MS = 10_000;
const RETRY_AFTER_LONGEST_MS = 60_000;

/** The wait after so many failures in a row: doubling, and up to half of it left out so that not all ask at once. */
export function backoffMs(failures: number, entropy: () => number = Math.random): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** (failures - 1));
  return Math.trunc(whole * (1 - entropy() / 2));
}

/** The wait after an error: what the server wants, or what backing off gives. */
export function waitMs(error: unknown, failures: number, entropy: () => number = Math.random): number {
  if (error instanceof Problem && error.retryAfterMs !== undefined) {
    return Math.min(error.retryAfterMs, RETRY_AFTER_LONGEST_MS);
  }
  return backoffMs(failures, entropy);
}

/** Waits; not any longer when the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}
