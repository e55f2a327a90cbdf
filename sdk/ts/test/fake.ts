/** A server that answers what a test wants, and keeps what it is asked. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { TaskDocument } from "../src/task.js";
import { later } from "./against.js";

/** A document, or what gives one when the request has come. A document with a status is a problem. */
export type Answer = object | (() => object);

/** A task of the function `count` with this number as its input. */
export function described(number: number): TaskDocument {
  return {
    task: `t-${number}`,
    token: `secret-${number}`,
    execution: "e",
    promise: `e.root.${number}`,
    function: "count",
    attempt: 1,
    input: number,
    delivery: "at-least-once",
    leaseMs: 30_000,
  };
}

/** The server. A claim for which there is no answer waits until the worker breaks it off. */
export class Fake {
  /** The requests: the end of the path, and the body. */
  readonly asked: [string, Record<string, unknown>][] = [];
  /** Happens when a claim waits. */
  readonly claimWaits = later();
  readonly #answers = new Map<string, Answer[]>();
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  /** Answers these, in turn, to requests of this name: `claim`, or `t-1/complete` for example. */
  answer(name: string, ...answers: Answer[]): void {
    this.#answers.set(name, answers);
  }

  /** What was asked, in order. */
  names(): string[] {
    return this.asked.map(([name]) => name);
  }

  /** The same without claims: those of other slots come at any time. */
  told(): string[] {
    return this.names().filter((name) => name !== "claim");
  }

  /** With what it was asked. */
  bodies(name: string): Record<string, unknown>[] {
    return this.asked.filter(([asked]) => asked === name).map(([, body]) => body);
  }

  /** Serves while something is done with its URL. */
  async serving(then: (url: string) => Promise<void>): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    try {
      await then(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
    } finally {
      this.#server.close();
      this.#server.closeAllConnections();
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const name = (request.url ?? "").slice("/v1/tasks/".length);
    const chunks = (await request.toArray().catch(() => undefined)) as Buffer[] | undefined;
    if (chunks === undefined) {
      return; // It was broken off.
    }
    this.asked.push([name, JSON.parse(String(Buffer.concat(chunks))) as Record<string, unknown>]);
    const answer = this.#answers.get(name)?.shift();
    if (answer === undefined && name === "claim") {
      this.claimWaits.happen();
      return;
    }
    const document = typeof answer === "function" ? (answer as () => object)() : (answer ?? { task: "any" });
    response.writeHead("status" in document ? Number(document.status) : 200, { "retry-after": "0" });
    response.end(JSON.stringify(document));
  }
}
