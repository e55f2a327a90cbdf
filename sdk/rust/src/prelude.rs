//! The items that most workflows need: `use onward::prelude::*;`.

pub use std::time::Duration;

pub use crate::{
    CallContext, Error, JoinResult, JoinSet, Json, NextResult, Promise, RaceResult, Result,
    RetryPolicy, Timestamp, all, all_settled, any, await_signal, await_signal_timeout, call,
    call_context, continue_as_new, debug, error, http, info, invoke, is_cancelled, join_set, now,
    race, random_bytes, random_u64, schedule, sleep, task, timer, warn, workflow,
};
