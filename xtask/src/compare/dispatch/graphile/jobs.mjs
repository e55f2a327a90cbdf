// What `cargo xtask compare dispatch` has graphile-worker do: jobs that do nothing, in the configuration that its own
// documentation has its fastest figures for.

import { setTimeout as pause } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const { DATABASE_URL: connectionString, JOBS, WARM_UP_JOBS, ADDED_AT_ONCE, LOOK_MS } = process.env;

const worker = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

let performed = 0;
const taskList = {
  nothing: () => {
    performed += 1;
  },
};

const quiet = new Logger(() => () => {});
const options = { connectionString, preset: { worker }, logger: quiet, noHandleSignals: true };
const observer = new pg.Client({ connectionString });

// The first value of the first row.
async function ask(question) {
  const { rows } = await observer.query(question);
  return Object.values(rows[0])[0];
}

async function add(utils, count) {
  const jobs = Array.from({ length: count }, (_, number) => {
    const id = `lead-${number}`;
    return { identifier: "nothing", payload: { id, address: `${id}@example.org` } };
  });
  while (jobs.length > 0) {
    await utils.addJobs(jobs.splice(0, Number(ADDED_AT_ONCE)));
  }
  // As autovacuum would in time, so that no query is planned without statistics.
  await observer.query("vacuum (analyze) graphile_worker._private_jobs");
}

// How long it takes until every job has been performed, and the last is deleted for good.
async function perform(count) {
  performed = 0;
  const begun = process.hrtime.bigint();
  const runner = await run({ ...options, taskList });
  while (performed < count || (await ask("select exists (select from graphile_worker._private_jobs)"))) {
    await pause(Number(LOOK_MS));
  }
  const took = process.hrtime.bigint() - begun;
  await runner.stop();
  if (performed !== count) {
    throw new Error(`${performed} jobs were performed of ${count}`);
  }
  return Number(took) / 1e9;
}

const logBytes = () => ask("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8");

await observer.connect();
const utils = await makeWorkerUtils(options);
await utils.migrate();
await add(utils, Number(WARM_UP_JOBS));
await perform(Number(WARM_UP_JOBS));
await add(utils, Number(JOBS));
const [bytes, cpu] = [await logBytes(), process.cpuUsage()];
const seconds = await perform(Number(JOBS));
const used = process.cpuUsage(cpu);
const answer = {
  jobs: performed,
  seconds,
  cpuSeconds: (used.user + used.system) / 1e6,
  logBytes: (await logBytes()) - bytes,
  settings: worker,
  fsync: await ask("show fsync"),
  synchronousCommit: await ask("show synchronous_commit"),
};
console.log(JSON.stringify(answer));
await utils.release();
await observer.end();
