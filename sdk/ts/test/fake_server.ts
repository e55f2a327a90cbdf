/** A fake server with scripted responses, which records the requests that it receives. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { TaskDocument } from "../src/task.js";
import { deferred } from "./scenario.js";

/**
 * A document, or a function that returns one when the request arrives. A document with a `status`
 * is sent as a problem.
 */
export type ScriptedResponse = object | (() => object);

/** A task of the function `count` with this number as its input. */
export function countTask(number: number): TaskDocument {
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

/** The server. A claim without a scripted response stays open until the worker aborts it. */
export class FakeServer {
  /** The received requests: the end of the path, and the body. */
  readonly requests: [string, Record<string, unknown>][] = [];
  /** Resolves when a claim without a response has arrived. */
  readonly claimPending = deferred();
  readonly #responses = new Map<string, ScriptedResponse[]>();
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  /** Scripts the responses to requests of this name: `claim`, or `t-1/complete` for example. */
  respond(name: string, ...responses: ScriptedResponse[]): void {
    this.#responses.set(name, responses);
  }

  /** The names of the received requests, in order. */
  requestNames(): string[] {
    return this.requests.map(([name]) => name);
  }

  /** The same without claims, which other slots send at any time. */
  reportNames(): string[] {
    return this.requestNames().filter((name) => name !== "claim");
  }

  /** The bodies of the received requests of this name. */
  bodies(name: string): Record<string, unknown>[] {
    return this.requests.filter(([other]) => other === name).map(([, body]) => body);
  }

  /** Serves while `body` runs with the URL of the server. */
  async whileServing(body: (url: string) => Promise<void>): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    try {
      await body(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
    } finally {
      this.#server.close();
      this.#server.closeAllConnections();
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const name = (request.url ?? "").slice("/v1/tasks/".length);
    const chunks = (await request.toArray().catch(() => undefined)) as Buffer[] | undefined;
    if (chunks === undefined) {
      return; // The worker aborted the request.
    }
    const body = JSON.parse(String(Buffer.concat(chunks))) as Record<string, unknown>;
    this.requests.push([name, body]);
    const scripted = this.#responses.get(name)?.shift();
    if (scripted === undefined && name === "claim") {
      this.claimPending.resolve();
      return;
    }
    const document =
      typeof scripted === "function" ? (scripted as () => object)() : (scripted ?? { task: "any" });
    const status = "status" in document ? Number(document.status) : 200;
    response.writeHead(status, { "retry-after": "0" });
    response.end(JSON.stringify(document));
  }
}
