// The graphile-worker side of `cargo xtask compare dispatch`: jobs that do nothing, in the
// configuration for which its documentation reports the best figures.

import { setTimeout as pause } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const { DATABASE_URL: connectionString, JOBS, WARM_UP_JOBS, ADD_BATCH, POLL_MS } = process.env;

const worker = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

let executed = 0;
const taskList = {
  nothing: () => {
    executed += 1;
  },
};

const quiet = new Logger(() => () => {});
const options = { connectionString, preset: { worker }, logger: quiet, noHandleSignals: true };
const observer = new pg.Client({ connectionString });

// Returns the first value of the first row.
async function queryValue(sql) {
  const { rows } = await observer.query(sql);
  return Object.values(rows[0])[0];
}

async function add(utils, count) {
  const jobs = Array.from({ length: count }, (_, number) => {
    const id = `lead-${number}`;
    return { identifier: "nothing", payload: { id, address: `${id}@example.org` } };
  });
  while (jobs.length > 0) {
    await utils.addJobs(jobs.splice(0, Number(ADD_BATCH)));
  }
  // Autovacuum would do this later. Without it, queries would be planned without statistics.
  await observer.query("vacuum (analyze) graphile_worker._private_jobs");
}

// Returns the seconds until every job has been executed and deleted.
async function runJobs(count) {
  executed = 0;
  const startedAt = process.hrtime.bigint();
  const runner = await run({ ...options, taskList });
  while (executed < count || (await queryValue("select exists (select from graphile_worker._private_jobs)"))) {
    await pause(Number(POLL_MS));
  }
  const took = process.hrtime.bigint() - startedAt;
  await runner.stop();
  if (executed !== count) {
    throw new Error(`${executed} jobs executed, expected ${count}`);
  }
  return Number(took) / 1e9;
}

const logBytes = () => queryValue("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8");

await observer.connect();
const utils = await makeWorkerUtils(options);
await utils.migrate();
await add(utils, Number(WARM_UP_JOBS));
await runJobs(Number(WARM_UP_JOBS));
await add(utils, Number(JOBS));
const [bytes, cpu] = [await logBytes(), process.cpuUsage()];
const seconds = await runJobs(Number(JOBS));
const used = process.cpuUsage(cpu);
const output = {
  jobs: executed,
  seconds,
  cpuSeconds: (used.user + used.system) / 1e6,
  logBytes: (await logBytes()) - bytes,
  settings: worker,
  fsync: await queryValue("show fsync"),
  synchronousCommit: await queryValue("show synchronous_commit"),
};
console.log(JSON.stringify(output));
await utils.release();
await observer.end();
