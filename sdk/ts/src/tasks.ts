/** The requests of a worker, as the server knows them. */

import type { Outcome } from "./outcome.js";
import { ANSWER_MS, type Server } from "./server.js";
import type { TaskDocument } from "./task.js";

/** A task that a worker wants to be given, if there is one at once. */
export interface Next {
  worker: string;
  functions: string[];
  leaseMs: number;
}

/** What a worker wants to be given. */
export interface Wish extends Next {
  max: number;
  waitMs: number;
}

/** What names a task, and proves that it is held. */
export type Claim = Pick<TaskDocument, "task" | "token">;

/** Claiming tasks, holding them, and telling how they ended. */
export class Tasks {
  readonly #server: Server;

  constructor(server: Server) {
    this.#server = server;
  }

  /** At most as many tasks as wished for; none if none came while the server waited. */
  async claim(wish: Wish, signal?: AbortSignal): Promise<TaskDocument[]> {
    const patience = { waitMs: wish.waitMs, ...(signal && { signal }) };
    const answer = await this.#server.ask("POST", "/v1/tasks/claim", wish, patience);
    return (answer as { tasks: TaskDocument[] }).tasks;
  }

  /** Holds a task for another lease. */
  async heartbeat(claim: Claim, answerMs = ANSWER_MS): Promise<void> {
    await this.#tell(claim, "heartbeat", {}, answerMs);
  }

  /** Tells how a task ended. Returns the task that is held instead, if one is wanted and there is one. */
  async tell(claim: Claim, outcome: Outcome, next?: Next): Promise<TaskDocument | undefined> {
    const answer = await this.#tell(claim, outcome.verb, { ...outcome.body, ...(next && { next }) }, ANSWER_MS);
    return (answer as { next?: TaskDocument }).next;
  }

  /** Gives a task back that was not begun. */
  async release(claim: Claim): Promise<void> {
    await this.#tell(claim, "release", {}, ANSWER_MS);
  }

  #tell({ task, token }: Claim, verb: string, body: object, answerMs: number): Promise<unknown> {
    return this.#server.ask("POST", `/v1/tasks/${encodeURIComponent(task)}/${verb}`, { token, ...body }, { answerMs });
  }
}
