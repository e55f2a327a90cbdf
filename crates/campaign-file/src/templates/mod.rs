//! Templates with bounded execution: rendering always terminates and its memory is limited,
//! whatever the template contains.
//!
//! - [`TemplateSet`]: named templates of one message, rendered for one recipient at a time.
//! - [`RenderBudget`]: limits all renderings of one request together.
//! - `nesting_depth`: rejects templates nested too deeply to parse. `memory_bound`: an upper bound
//!   on the memory a template can use, computed from its source. `filters`: replacements for
//!   filters that could expand a small input without limit. `template_error`: the errors of
//!   compiling and rendering.

mod filters;
mod memory_bound;
mod nesting_depth;
mod render_budget;
mod template_error;
mod template_set;

pub use render_budget::RenderBudget;
pub use template_error::{TemplateError, TemplateErrorKind};
pub use template_set::{TemplateLimits, TemplateSet};
