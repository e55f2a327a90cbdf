// The handlers that `cargo xtask compare` calls on Restate. Their steps do nothing, so that only the
// engine is measured.

import { createServer } from "node:http2";
import * as restate from "@restatedev/restate-sdk";

const compare = restate.service({
  name: "compare",
  handlers: {
    start: async () => 0,

    chain: async (ctx, { steps }) => {
      let done = 0;
      for (let step = 0; step < steps; step++) {
        done += await ctx.run("step", () => 1);
      }
      return done;
    },

    fanout: async (ctx, { steps }) => {
      const all = Array.from({ length: steps }, () => ctx.run("step", () => 1));
      const done = await restate.RestatePromise.all(all);
      return done.reduce((sum, one) => sum + one, 0);
    },

    // Each step returns its time. The times are in the journal, so a replay does not change them.
    long: async (ctx, { steps, part }) => {
      const times = [];
      for (let step = 0; step < steps; step++) {
        times.push(await ctx.run("step", () => Date.now()));
      }
      const first_ms = times[part] - times[0];
      const last_ms = times[steps - 1] - times[steps - 1 - part];
      return { done: times.length, first_ms, last_ms };
    },
  },
});

createServer(restate.createEndpointHandler({ services: [compare] })).listen(Number(process.env.PORT), "127.0.0.1");
