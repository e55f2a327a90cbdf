/** Graceful shutdown on SIGINT and SIGTERM. */

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/**
 * Returns a signal that is aborted at the first SIGINT or SIGTERM. A second one has its default
 * effect and ends the process.
 *
 * `release` removes the handlers.
 */
export function abortOnSignals(): { signal: AbortSignal; release: () => void } {
  const controller = new AbortController();
  const release = () => SIGNALS.forEach((name) => process.off(name, stop));
  const stop = () => {
    release();
    controller.abort();
  };
  SIGNALS.forEach((name) => process.on(name, stop));
  return { signal: controller.signal, release };
}
