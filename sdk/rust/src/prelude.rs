//! The items that most workflows need: `use onward::prelude::*;`.

pub use std::time::Duration;

pub use crate::{
    Context, Done, Error, First, JoinSet, Json, Promise, Result, Retry, Taken, Timestamp, all,
    all_settled, any, await_signal, await_signal_timeout, call, continue_as_new, debug, error,
    http, info, invoke, is_cancelled, join_set, now, own, race, random_bytes, random_u64, schedule,
    sleep, task, timer, warn, workflow,
};
