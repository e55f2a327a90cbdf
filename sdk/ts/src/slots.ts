/** Concurrency limit of a worker: a fixed number of slots, one task in each at a time. */

import type { Lease } from "./lease.js";

/**
 * Executes a task. Never rejects.
 *
 * Returns the next task of the workflow, if there is one: it runs in the same slot, which stays
 * occupied in between.
 */
type ExecuteTask = (lease: Lease) => Promise<Lease | undefined>;

/** The slots of a worker. The number of free slots limits how many tasks it claims. */
export class Slots {
  readonly #count: number;
  readonly #occupied = new Set<Lease>();
  #notify = () => {};
  #changed: Promise<void> = this.#nextChange();

  constructor(count: number) {
    this.#count = count;
  }

  /** Waits until a slot is free, and returns the number of free slots; 0 if stopped. */
  async waitForFree(stop: AbortSignal): Promise<number> {
    const wake = () => this.#wake();
    stop.addEventListener("abort", wake);
    while (this.#occupied.size >= this.#count && !stop.aborted) {
      await this.#changed;
    }
    stop.removeEventListener("abort", wake);
    return stop.aborted ? 0 : this.#count - this.#occupied.size;
  }

  /** Executes a task, and the tasks that follow it, in a free slot. */
  start(lease: Lease, execute: ExecuteTask): void {
    this.#occupied.add(lease);
    void this.#run(lease, execute);
  }

  /** Waits for the tasks in flight; returns those that are unfinished after the grace period. */
  async drain(graceMs: number): Promise<Lease[]> {
    let isExpired = false;
    const expire = () => {
      isExpired = true;
      this.#wake();
    };
    // `setTimeout` supports no longer delay; such a grace period has no limit.
    const timer = graceMs < 2 ** 31 ? setTimeout(expire, graceMs) : undefined;
    while (this.#occupied.size > 0 && !isExpired) {
      await this.#changed;
    }
    clearTimeout(timer);
    return [...this.#occupied];
  }

  async #run(lease: Lease, execute: ExecuteTask): Promise<void> {
    let next: Lease | undefined;
    try {
      next = await execute(lease);
    } finally {
      this.#occupied.delete(lease);
      if (next) {
        this.start(next, execute);
      } else {
        this.#wake();
      }
    }
  }

  #wake(): void {
    const notify = this.#notify;
    this.#changed = this.#nextChange();
    notify();
  }

  #nextChange(): Promise<void> {
    return new Promise((resolve) => (this.#notify = resolve));
  }
}
