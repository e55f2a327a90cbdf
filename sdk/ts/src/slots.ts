/** Places for tasks that are performed at the same time. */

import type { Lease } from "./lease.js";

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

  /** Has a task performed. `perform` does not throw. */
  put(lease: Lease, perform: (lease: Lease) => Promise<void>): void {
    this.#held.add(lease);
    void perform(lease).finally(() => {
      this.#held.delete(lease);
      this.#wake();
    });
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

  #wake(): void {
    const ring = this.#ring;
    this.#rung = this.#nextRing();
    ring();
  }

  #nextRing(): Promise<void> {
    return new Promise((resolve) => (this.#ring = resolve));
  }
}
