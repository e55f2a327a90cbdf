/** Shutdown and connection failures, tested without a server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Unreachable, Worker } from "../src/index.js";
import { silent } from "./scenario.js";

const INDEX = new URL("../src/index.js", import.meta.url);

const PROGRAM = `
import { Worker } from ${JSON.stringify(INDEX.href)};
const worker = new Worker({ server: process.argv[1] });
const running = worker.task("nothing", () => {}).run();
console.log("working");
await running;
console.log("stopped");
`;

/** A URL on which no server listens. */
async function unusedUrl(): Promise<string> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return `http://127.0.0.1:${port}`;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  void test(`${signal} stops a worker`, async () => {
    const args = ["--input-type=module", "-e", PROGRAM, await unusedUrl()];
    const program = spawn(process.execPath, args);
    const exited = once(program, "exit");
    let printed = "";
    program.stdout.on("data", (chunk: Buffer) => {
      printed += chunk;
      if (printed === "working\n") {
        program.kill(signal);
      }
    });
    assert.deepEqual(await exited, [0, null]);
    assert.equal(printed, "working\nstopped\n");
  });
}

void test("a worker retries while the server is unreachable", async () => {
  const worker = new Worker({ server: await unusedUrl(), log: silent });
  const stop = new AbortController();
  const running = worker.task("nothing", () => {}).run({ signal: stop.signal });
  const state = await Promise.race([running.then(() => "stopped"), sleep(500, "running")]);
  assert.equal(state, "running");
  stop.abort();
  await running;
  await assert.rejects(worker.run(), /has already run/);
});

void test("a client reports an unreachable server", async () => {
  const client = new Client({ server: await unusedUrl() });
  const error: unknown = await client.start("order").catch((error: unknown) => error);
  assert.ok(error instanceof Unreachable);
  assert.match(error.message, /no response from .*ECONNREFUSED/);
});
