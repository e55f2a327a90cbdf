//! Benchmarks: what `onward bench`, the `cargo bench` targets and the comparisons share.
//!
//! - [`workloads`]: the measurements of `onward bench`, on this machine and its disk or database.
//! - [`target_report`]: options and report of the `cargo bench` targets in `benches/`.
//! - [`dispatch_load`]: campaign runs that `onward bench dispatch` and a bench target dispatch.
//! - [`machine`], [`process_usage`], [`child_process`], [`load`], [`statistics`], [`stopwatch`] and
//!   [`text_table`]: what is measured and printed everywhere.
//!
//! The comparisons with other engines are the binary `onward-compare`, in `compare/`.

pub mod child_process;
pub mod dispatch_load;
pub mod load;
pub mod machine;
pub mod process_usage;
pub mod statistics;
pub mod stopwatch;
pub mod target_report;
pub mod text_table;
pub mod workloads;
