//! Templates that cannot hurt whoever fills them in, whoever has written them: they end, and take so much memory and no more.
//!
//! - [`Templates`]: some templates under their names, and what each says of somebody.
//! - `depth`: those that are nested too deeply to be parsed. `bounds`: what a template can take in memory, worked out from its
//!   text. `filters`: filters that could make much of little, with a limit.

mod filters;
mod memory_bound;
mod nesting_depth;
mod template_set;

pub use template_set::{TemplateError, TemplateLimits, TemplateSet};
