//! Named templates with limits on output, memory and steps.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::RangeInclusive;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use crate::templates::filters;
use crate::templates::memory_bound::{self, ByteBound};
use crate::templates::nesting_depth::check_nesting_depth;
use crate::templates::render_budget::RenderBudget;
use crate::templates::template_error::{TemplateError, TemplateErrorKind};

/// Maximum number of bytes that all steps of one rendering touch together: some seconds.
const TOUCHED_BYTES_MAX: u64 = 16 << 30;
/// Maximum length in bytes of an undefined expression in an error.
const EXPRESSION_BYTES_MAX: usize = 200;
/// Maximum recursion depth of a template; templates written by hand are hardly deeper.
const RECURSION_MAX: usize = 100;

/// Resource limits of each rendering.
#[derive(Debug, Clone)]
pub struct TemplateLimits {
    /// Maximum length of the output in bytes.
    pub output_bytes: usize,
    /// Maximum memory of intermediate values in bytes.
    pub memory_bytes: u64,
    /// Limits of the number of steps. The end applies by default; the more memory a step can touch,
    /// the fewer steps are allowed, but never fewer than the start.
    pub steps: RangeInclusive<u64>,
}

/// Writes a value to the output of a template.
type ValueFormatter = fn(&mut Output<'_>, &mut State<'_, '_>, &Value) -> Result<(), Error>;

/// Named templates that share their limits, escaping and filters.
#[derive(Debug)]
pub struct TemplateSet {
    environment: Environment<'static>,
    limits: TemplateLimits,
    /// Upper bound of the memory that each template can use.
    memory_bounds: BTreeMap<String, ByteBound>,
}

impl TemplateSet {
    /// Creates an empty set. `escape` selects the escaping of the output by the name of the
    /// template.
    pub fn new(
        limits: TemplateLimits,
        escape: impl Fn(&str) -> AutoEscape + Send + Sync + 'static,
    ) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(escape);
        environment.set_fuel(Some(*limits.steps.end()));
        environment.set_recursion_limit(RECURSION_MAX);
        environment.set_debug(true);
        // With `namespace`, a loop could nest lists in lists without limit.
        environment.remove_global("namespace");
        environment.remove_global("debug");
        filters::install_bounded_filters(&mut environment);
        Self {
            environment,
            limits,
            memory_bounds: BTreeMap::new(),
        }
    }

    /// Returns the set with another function that writes values to the output.
    #[must_use]
    pub fn with_formatter(mut self, formatter: ValueFormatter) -> Self {
        self.environment.set_formatter(formatter);
        self
    }

    /// Compiles a template and adds it. Fails if it is invalid, nested too deeply, or could exceed
    /// the memory limit.
    pub fn add_template(&mut self, name: &str, text: &str) -> Result<(), TemplateError> {
        check_nesting_depth(text)?;
        // Must come before compilation, which evaluates constant expressions.
        let bound = memory_bound::bound_template_memory(text, self.limits.memory_bytes)?;
        self.environment
            .add_template_owned(name.to_owned(), text.to_owned())
            .map_err(|error| template_error(&error))?;
        self.memory_bounds.insert(name.to_owned(), bound);
        Ok(())
    }

    /// Renders a template with these variables, which use `variable_bytes` of memory. Fails if the
    /// template exceeds a limit, or the [`RenderBudget`] of this thread, or uses an undefined
    /// variable.
    pub fn render(
        &self,
        name: &str,
        variables: &Value,
        variable_bytes: u64,
    ) -> Result<String, TemplateError> {
        let TemplateLimits {
            output_bytes,
            memory_bytes,
            steps,
        } = &self.limits;
        let memory_bound = self
            .memory_bounds
            .get(name)
            .copied()
            .unwrap_or_default()
            .for_row_bytes(variable_bytes);
        if memory_bound > *memory_bytes {
            return Err(TemplateError::without_line(
                TemplateErrorKind::RecipientMemoryBound {
                    mib_max: memory_bytes >> 20,
                },
            ));
        }
        // The more bytes a step can touch, the fewer steps are allowed.
        let steps_max = (TOUCHED_BYTES_MAX / memory_bound.max(1))
            .max(*steps.start())
            .min(*steps.end());
        let budget = RenderBudget::current();
        let allowed = match &budget {
            Some(budget) => budget
                .allowed_steps(steps_max)
                .map_err(TemplateError::without_line)?,
            None => steps_max,
        };
        let mut limited = None;
        if allowed < *steps.end() {
            limited
                .insert(self.environment.clone())
                .set_fuel(Some(allowed));
        }
        let environment = limited.as_ref().unwrap_or(&self.environment);
        let mut output = BoundedOutput {
            bytes: Vec::new(),
            bytes_max: *output_bytes,
            is_full: false,
        };
        let template = environment
            .get_template(name)
            .map_err(|error| template_error(&error))?;
        let rendered = template
            .render_captured_to(variables.clone(), &mut output)
            .map(|captured| captured.state().fuel_levels());
        if let Some(budget) = &budget {
            match &rendered {
                Ok(fuel) => budget.charge_steps(fuel.map_or(0, |(consumed, _)| consumed)),
                Err(error) if error.kind() == ErrorKind::OutOfFuel => {
                    budget.charge_steps(allowed);
                    if allowed < steps_max {
                        budget.mark_spent();
                        return Err(TemplateError::without_line(TemplateErrorKind::BudgetSpent));
                    }
                }
                // How many steps preceded another error is unknown; the time of the request limits
                // these renderings.
                Err(_) => {}
            }
        }
        match rendered {
            Err(_) if output.is_full => {
                Err(TemplateError::without_line(TemplateErrorKind::LongOutput {
                    bytes_max: *output_bytes,
                }))
            }
            Err(error) => Err(template_error(&error)),
            Ok(_) => String::from_utf8(output.bytes)
                .map_err(|_| TemplateError::without_line(TemplateErrorKind::OutputNotUtf8)),
        }
    }
}

fn template_error(error: &Error) -> TemplateError {
    let kind = match error.kind() {
        ErrorKind::UndefinedError => TemplateErrorKind::Undefined {
            expression: undefined_expression(error).map(str::to_owned),
        },
        ErrorKind::OutOfFuel => TemplateErrorKind::TooManySteps,
        kind => TemplateErrorKind::Engine(
            error
                .detail()
                .map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
        ),
    };
    TemplateError {
        line: error.line(),
        kind,
    }
}

/// Returns the expression of the template that is not defined.
fn undefined_expression(error: &minijinja::Error) -> Option<&str> {
    let (source, range) = (error.template_source()?, error.range()?);
    // For `a.b.c` the engine may report the range of the last segment only.
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let start = source.get(..range.start)?.trim_end_matches(is_path).len();
    let expression = source.get(start..range.end)?.trim();
    (!expression.is_empty() && expression.len() <= EXPRESSION_BYTES_MAX).then_some(expression)
}

/// A buffer that fails when it would exceed its maximum length.
struct BoundedOutput {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
