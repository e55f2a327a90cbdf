//! Named templates with limits on output, memory and steps.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::ops::RangeInclusive;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use crate::templates::filters;
use crate::templates::memory_bound::{self, ByteBound};
use crate::templates::nesting_depth::find_excess_depth;

/// Maximum number of bytes that all steps of one rendering touch together: some seconds.
const TOUCHED_BYTES_MAX: u64 = 16 << 30;
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

/// An error in a template, or in the variables it is rendered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// Line of the template, counted from 1; `None` if the error has no position.
    pub line: Option<usize>,
    /// What is wrong, as a phrase that follows the name of the template.
    pub reason: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.line
            .map_or(Ok(()), |line| write!(f, " in line {line}"))
    }
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
    pub fn with_formatter(mut self, print: ValueFormatter) -> Self {
        self.environment.set_formatter(print);
        self
    }

    /// Compiles a template and adds it. Fails if it is invalid, nested too deeply, or could exceed
    /// the memory limit.
    pub fn add_template(&mut self, name: &str, text: &str) -> Result<(), TemplateError> {
        let at = |(line, reason)| TemplateError {
            line: Some(line),
            reason,
        };
        find_excess_depth(text).map_or(Ok(()), |deep| Err(at(deep)))?;
        // Must come before compilation, which evaluates constant expressions.
        let bytes =
            memory_bound::bound_template_memory(text, self.limits.memory_bytes).map_err(at)?;
        self.environment
            .add_template_owned(name.to_owned(), text.to_owned())
            .map_err(|error| template_error(&error))?;
        self.memory_bounds.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Renders a template with these variables, which take `known` bytes of memory. Fails if the
    /// template exceeds a limit or uses an undefined variable.
    pub fn render(
        &self,
        name: &str,
        variables: &Value,
        known: u64,
    ) -> Result<String, TemplateError> {
        let TemplateLimits {
            output_bytes: printed,
            memory_bytes: memory,
            steps,
        } = &self.limits;
        let fail = |reason: String| TemplateError { line: None, reason };
        let bytes = self
            .memory_bounds
            .get(name)
            .copied()
            .unwrap_or_default()
            .for_row_bytes(known);
        if bytes > *memory {
            return Err(fail(format!(
                "could come to more than {} MiB for this recipient",
                memory >> 20
            )));
        }
        // The more bytes a step can touch, the fewer steps are allowed.
        let fewer = (TOUCHED_BYTES_MAX / bytes.max(1)).max(*steps.start());
        let mut slower = None;
        if fewer < *steps.end() {
            slower
                .insert(self.environment.clone())
                .set_fuel(Some(fewer));
        }
        let environment = slower.as_ref().unwrap_or(&self.environment);
        let mut text = BoundedOutput {
            bytes: Vec::new(),
            bytes_max: *printed,
            is_full: false,
        };
        let template = environment
            .get_template(name)
            .map_err(|error| template_error(&error))?;
        match template
            .render_captured_to(variables.clone(), &mut text)
            .map(drop)
        {
            Err(_) if text.is_full => Err(fail(format!("is longer than {printed} bytes"))),
            Err(error) => Err(template_error(&error)),
            Ok(()) => String::from_utf8(text.bytes).map_err(|_| fail("is not UTF-8".to_owned())),
        }
    }
}

fn template_error(error: &Error) -> TemplateError {
    let reason = match error.kind() {
        ErrorKind::UndefinedError => match undefined_expression(error) {
            Some(name) => format!("`{name}` is not defined"),
            None => "something is not defined".to_owned(),
        },
        ErrorKind::OutOfFuel => {
            "takes too many steps: is there a loop that does not end?".to_owned()
        }
        kind => error
            .detail()
            .map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    TemplateError {
        line: error.line(),
        reason,
    }
}

/// Returns the expression of the template that is not defined.
fn undefined_expression(error: &minijinja::Error) -> Option<&str> {
    let (source, range) = (error.template_source()?, error.range()?);
    // For `a.b.c` the engine may report the range of the last segment only.
    let is_before = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let start = source.get(..range.start)?.trim_end_matches(is_before).len();
    let piece = source.get(start..range.end)?.trim();
    (!piece.is_empty() && piece.len() <= 200).then_some(piece)
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
