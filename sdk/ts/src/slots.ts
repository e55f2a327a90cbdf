/** Places for tasks that are performed at the same time. */

import type { Lease } from "./lease.js";

/**
 * Performs a task, and does not throw.
 *
 * Returns the task that follows, if there is one: that goes on in the same place, which is not free between.
 */
type Work = (lease: Lease) => Promise<Lease | undefined>;

/** So many places. Whoever claims asks how many are free first. */
export class Slots {
  readonly #count: number;
  readonly #held = new Set<Lease>();
  #ring = () => {};
  #rung: Promise<void> = this.#nextRing();

  constructor(count: number) {
    this.#count = count;
  }

  /** How many tasks can be performed now; waits until one can. 0 when stopped. */
  async waitFree(stop: AbortSignal): Promise<number> {
    const wake = () => this.#wake();
    stop.addEventListener("abort", wake);
    while (this.#held.size >= this.#count && !stop.aborted) {
      await this.#rung;
    }
    stop.removeEventListener("abort", wake);
    return stop.aborted ? 0 : this.#count - this.#held.size;
  }

  /** Has a task performed, and those that follow it. */
  put(lease: Lease, perform: Work): void {
    this.#held.add(lease);
    void this.#work(lease, perform);
  }

  /** Waits for what is under way, and returns what is left of it after a while. */
  async finish(graceMs: number): Promise<Lease[]> {
    let late = false;
    const wake = () => {
      late = true;
      this.#wake();
    };
    // A timer cannot be longer than that.
    const timer = graceMs < 2 ** 31 ? setTimeout(wake, graceMs) : undefined;
    while (this.#held.size > 0 && !late) {
      await this.#rung;
    }
    clearTimeout(timer);
    return [...this.#held];
  }

  async #work(lease: Lease, perform: Work): Promise<void> {
    let following: Lease | undefined;
    try {
      following = await perform(lease);
    } finally {
      this.#held.delete(lease);
      if (following) {
        this.put(following, perform);
      } else {
        this.#wake();
      }
    }
  }

  #wake(): void {
    const ring = this.#ring;
    this.#rung = this.#nextRing();
    ring();
  }

  #nextRing(): Promise<void> {
    return new Promise((resolve) => (this.#ring = resolve));
  }
}
