//! Small workflows and tasks for the tests of the engine.
//!
//! `seed` has the three that produce the worked examples of the specification; the others use one
//! feature each.

mod basics;
mod limits;
mod outside;
mod seed;

use basics::{
    chain, child, compensate, counter, echo, fail, fan_out, flaky, parent, persistent, saga,
    sleeper, step, waiter,
};
use limits::{hog, spin, trap, trap_task};
use outside::{call_native, http_by_task, http_get, http_task};
use seed::{
    blocking_signal, buffered_signal, create_order, fetch_user, full_example, send_email, send_sms,
};

onward::component!(
    full_example,
    buffered_signal,
    blocking_signal,
    fetch_user,
    send_email,
    send_sms,
    create_order,
    echo,
    chain,
    fan_out,
    step,
    sleeper,
    waiter,
    parent,
    child,
    saga,
    compensate,
    counter,
    fail,
    persistent,
    flaky,
    trap,
    trap_task,
    spin,
    hog,
    http_get,
    http_by_task,
    http_task,
    call_native,
);

#[cfg(test)]
mod tests;
