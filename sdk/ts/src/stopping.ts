/** Stopping when the process is asked to. */

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/**
 * Something that is aborted at the first SIGINT or SIGTERM; the second does what it would have done anyway.
 *
 * `release` goes back to how it was before.
 */
export function stopping(): { signal: AbortSignal; release: () => void } {
  const controller = new AbortController();
  const release = () => SIGNALS.forEach((name) => process.off(name, stop));
  const stop = () => {
    release();
    controller.abort();
  };
  SIGNALS.forEach((name) => process.on(name, stop));
  return { signal: controller.signal, release };
}
