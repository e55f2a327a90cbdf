//! Templates under their names.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::ops::RangeInclusive;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};

use crate::bounds::{self, Bytes};
use crate::depth::too_deep;
use crate::filters;

/// Bytes that all steps of a template together can touch: some seconds.
const WORK_MAX: u64 = 16 << 30;
/// Templates within templates; what is deeper is hardly written by hand.
const DEPTH_MAX: usize = 100;

/// What a template may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of what it prints.
    pub printed: usize,
    /// Bytes of what it computes on the way.
    pub memory: u64,
    /// Steps: the fewest where each can touch much, and the most.
    pub steps: RangeInclusive<u64>,
}

/// What is wrong with a template, or with what it is to be filled in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// In which line, from 1.
    pub line: Option<usize>,
    /// What.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.line.map_or(Ok(()), |line| write!(f, " in line {line}"))
    }
}

/// How values are printed.
type Print = fn(&mut Output<'_>, &mut State<'_, '_>, &Value) -> Result<(), Error>;

/// Templates under their names.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
    limits: Limits,
    /// What each can take in memory.
    bytes: BTreeMap<String, Bytes>,
}

impl Templates {
    /// None yet. What is printed is escaped as `escape` says of a template's name.
    pub fn new(limits: Limits, escape: impl Fn(&str) -> AutoEscape + Send + Sync + 'static) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(escape);
        environment.set_fuel(Some(*limits.steps.end()));
        environment.set_recursion_limit(DEPTH_MAX);
        environment.set_debug(true);
        // With it a loop could put a list into a list, without end.
        environment.remove_global("namespace");
        environment.remove_global("debug");
        filters::limit(&mut environment);
        Self { environment, limits, bytes: BTreeMap::new() }
    }

    /// The same, with values printed in another way.
    #[must_use]
    pub fn printing(mut self, print: Print) -> Self {
        self.environment.set_formatter(print);
        self
    }

    /// Reads a template.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), Wrong> {
        let at = |(line, reason)| Wrong { line: Some(line), reason };
        too_deep(text).map_or(Ok(()), |deep| Err(at(deep)))?;
        // Before it is compiled, which computes what is known by then.
        let bytes = bounds::of(text, self.limits.memory).map_err(at)?;
        self.environment.add_template_owned(name.to_owned(), text.to_owned()).map_err(|error| wrong(&error))?;
        self.bytes.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// What a template says of these, which take so many bytes.
    pub fn render(&self, name: &str, variables: &Value, known: u64) -> Result<String, Wrong> {
        let Limits { printed, memory, steps } = &self.limits;
        let fail = |reason: String| Wrong { line: None, reason };
        let bytes = self.bytes.get(name).copied().unwrap_or_default().of(known);
        if bytes > *memory {
            return Err(fail(format!("could come to more than {} MiB for this recipient", memory >> 20)));
        }
        // Where each step can touch much, there are fewer of them.
        let fewer = (WORK_MAX / bytes.max(1)).max(*steps.start());
        let mut slower = None;
        if fewer < *steps.end() {
            slower.insert(self.environment.clone()).set_fuel(Some(fewer));
        }
        let environment = slower.as_ref().unwrap_or(&self.environment);
        let mut text = Limited { bytes: Vec::new(), most: *printed, is_full: false };
        let template = environment.get_template(name).map_err(|error| wrong(&error))?;
        match template.render_captured_to(variables.clone(), &mut text).map(drop) {
            Err(_) if text.is_full => Err(fail(format!("is longer than {printed} bytes"))),
            Err(error) => Err(wrong(&error)),
            Ok(()) => String::from_utf8(text.bytes).map_err(|_| fail("is not UTF-8".to_owned())),
        }
    }
}

fn wrong(error: &Error) -> Wrong {
    let reason = match error.kind() {
        ErrorKind::UndefinedError => match culprit(error) {
            Some(name) => format!("`{name}` is not defined"),
            None => "something is not defined".to_owned(),
        },
        ErrorKind::OutOfFuel => "takes too many steps: is there a loop that does not end?".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    Wrong { line: error.line(), reason }
}

/// The piece of the template that is not defined.
fn culprit(error: &minijinja::Error) -> Option<&str> {
    let (source, range) = (error.template_source()?, error.range()?);
    // Of `a.b.c` it may be told the end alone.
    let is_before = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let start = source.get(..range.start)?.trim_end_matches(is_before).len();
    let piece = source.get(start..range.end)?.trim();
    (!piece.is_empty() && piece.len() <= 200).then_some(piece)
}

/// A text that does not grow for ever.
struct Limited {
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
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
