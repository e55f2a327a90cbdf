//! Templates under their names.

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

/// Bytes that all steps of a template together can touch: some seconds.
const TOUCHED_BYTES_MAX: u64 = 16 << 30;
/// Templates within templates; what is deeper is hardly written by hand.
const RECURSION_MAX: usize = 100;

/// What a template may take.
#[derive(Debug, Clone)]
pub struct TemplateLimits {
    /// Bytes of what it prints.
    pub output_bytes: usize,
    /// Bytes of what it computes on the way.
    pub memory_bytes: u64,
    /// Steps: the fewest where each can touch much, and the most.
    pub steps: RangeInclusive<u64>,
}

/// What is wrong with a template, or with what it is to be filled in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// In which line, from 1.
    pub line: Option<usize>,
    /// What.
    pub reason: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.line
            .map_or(Ok(()), |line| write!(f, " in line {line}"))
    }
}

/// How values are printed.
type ValueFormatter = fn(&mut Output<'_>, &mut State<'_, '_>, &Value) -> Result<(), Error>;

/// Templates under their names.
#[derive(Debug)]
pub struct TemplateSet {
    environment: Environment<'static>,
    limits: TemplateLimits,
    /// What each can take in memory.
    memory_bounds: BTreeMap<String, ByteBound>,
}

impl TemplateSet {
    /// None yet. What is printed is escaped as `escape` says of a template's name.
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
        // With it a loop could put a list into a list, without end.
        environment.remove_global("namespace");
        environment.remove_global("debug");
        filters::install_bounded_filters(&mut environment);
        Self {
            environment,
            limits,
            memory_bounds: BTreeMap::new(),
        }
    }

    /// The same, with values printed in another way.
    #[must_use]
    pub fn with_formatter(mut self, print: ValueFormatter) -> Self {
        self.environment.set_formatter(print);
        self
    }

    /// Reads a template.
    pub fn add_template(&mut self, name: &str, text: &str) -> Result<(), TemplateError> {
        let at = |(line, reason)| TemplateError {
            line: Some(line),
            reason,
        };
        find_excess_depth(text).map_or(Ok(()), |deep| Err(at(deep)))?;
        // Before it is compiled, which computes what is known by then.
        let bytes =
            memory_bound::bound_template_memory(text, self.limits.memory_bytes).map_err(at)?;
        self.environment
            .add_template_owned(name.to_owned(), text.to_owned())
            .map_err(|error| template_error(&error))?;
        self.memory_bounds.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// What a template says of these, which take so many bytes.
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
        // Where each step can touch much, there are fewer of them.
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

/// The piece of the template that is not defined.
fn undefined_expression(error: &minijinja::Error) -> Option<&str> {
    let (source, range) = (error.template_source()?, error.range()?);
    // Of `a.b.c` it may be told the end alone.
    let is_before = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let start = source.get(..range.start)?.trim_end_matches(is_before).len();
    let piece = source.get(start..range.end)?.trim();
    (!piece.is_empty() && piece.len() <= 200).then_some(piece)
}

/// A text that does not grow for ever.
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
