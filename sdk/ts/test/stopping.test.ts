/** Stopping, without a server: nobody listens where these workers look for one. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Unreachable, Worker } from "../src/index.js";
import { silent } from "./against.js";

const INDEX = new URL("../src/index.js", import.meta.url);

const PROGRAM = `
import { Worker } from ${JSON.stringify(INDEX.href)};
const worker = new Worker({ server: process.argv[1] });
const running = worker.task("nothing", () => {}).run();
console.log("working");
await running;
console.log("stopped");
`;

/** A URL at which nobody listens. */
async function nowhere(): Promise<string> {
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  taken.close();
  await once(taken, "close");
  return `http://127.0.0.1:${port}`;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  void test(`${signal} stops a worker`, async () => {
    const program = spawn(process.execPath, ["--input-type=module", "-e", PROGRAM, await nowhere()]);
    const ended = once(program, "exit");
    let said = "";
    program.stdout.on("data", (chunk: Buffer) => {
      said += chunk;
      if (said === "working\n") {
        program.kill(signal);
      }
    });
    assert.deepEqual(await ended, [0, null]);
    assert.equal(said, "working\nstopped\n");
  });
}

void test("a worker survives a server that is away", async () => {
  const worker = new Worker({ server: await nowhere(), log: silent });
  const stop = new AbortController();
  const running = worker.task("nothing", () => {}).run({ signal: stop.signal });
  assert.equal(await Promise.race([running.then(() => "ended"), sleep(500, "works")]), "works");
  stop.abort();
  await running;
  await assert.rejects(worker.run(), /runs once/);
});

void test("a client says that nobody answers", async () => {
  const client = new Client({ server: await nowhere() });
  const error: unknown = await client.start("order").catch((error: unknown) => error);
  assert.ok(error instanceof Unreachable);
  assert.match(error.message, /does not answer: .*ECONNREFUSED/);
});
