//! Errors of templates: invalid syntax, exceeded limits and undefined variables.

use thiserror::Error;

/// An error in a template, or in the variables with which it is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind}{}", line.map(|line| format!(" in line {line}")).unwrap_or_default())]
pub struct TemplateError {
    /// Line of the template, counted from 1; `None` if the error has no position.
    pub line: Option<usize>,
    /// The reason why the template cannot be compiled or rendered.
    pub kind: TemplateErrorKind,
}

impl TemplateError {
    pub(super) const fn without_line(kind: TemplateErrorKind) -> Self {
        Self { line: None, kind }
    }

    pub(super) const fn at_line(line: usize, kind: TemplateErrorKind) -> Self {
        Self {
            line: Some(line),
            kind,
        }
    }
}

/// Reasons why a template cannot be compiled or rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateErrorKind {
    /// A tag has too many tokens: the parser could overflow the stack.
    #[error("a tag has more than {tokens_max} tokens")]
    LongTag {
        /// Maximum number of tokens per tag.
        tokens_max: usize,
    },
    /// A keyword that nests blocks or values occurs too often.
    #[error("`{keyword}` occurs more than {max} times")]
    RepeatedKeyword {
        /// The keyword.
        keyword: &'static str,
        /// Maximum number of occurrences.
        max: usize,
    },
    /// Loops are nested too deeply.
    #[error("more than {loops_max} loops are nested")]
    NestedLoops {
        /// Maximum nesting depth of loops.
        loops_max: usize,
    },
    /// A `set` block captures its output, which the output limit does not count.
    #[error("`set` blocks are not supported: use `{{% set name = … %}}`")]
    SetBlock,
    /// A `filter` block captures its output, which the output limit does not count.
    #[error("`filter` blocks are not supported: apply the filter to a value")]
    FilterBlock,
    /// A loop extends a variable with each iteration, so its memory has no bound.
    #[error("a variable grows with each iteration of the loop")]
    GrowingVariable,
    /// A product may be a text repeated a number of times that comes from the recipient's data.
    #[error("may repeat a text: convert the factors to numbers, as in `price|float * count`")]
    AmbiguousProduct,
    /// The template uses a filter that does not exist or was removed.
    #[error("unknown filter `{0}`")]
    UnknownFilter(String),
    /// The arguments of `map` are not supported.
    #[error("`map` accepts an attribute, or the name of a filter that needs no arguments")]
    MapArguments,
    /// The upper bound of the memory of the template exceeds the limit.
    #[error("could use more than {mib_max} MiB of memory")]
    MemoryBound {
        /// Maximum memory in MiB.
        mib_max: u64,
    },
    /// The same, with the data of one recipient.
    #[error("could use more than {mib_max} MiB of memory for this recipient")]
    RecipientMemoryBound {
        /// Maximum memory in MiB.
        mib_max: u64,
    },
    /// The output exceeds its maximum length.
    #[error("the output is longer than {bytes_max} bytes")]
    LongOutput {
        /// Maximum length of the output in bytes.
        bytes_max: usize,
    },
    /// The output is not UTF-8.
    #[error("the output is not UTF-8")]
    OutputNotUtf8,
    /// The template uses a variable that is not defined, and does not define a default for it.
    #[error("{} is not defined", expression.as_ref().map_or_else(
        || "a variable".to_owned(),
        |expression| format!("`{expression}`"),
    ))]
    Undefined {
        /// The expression in the template; `None` if its position is unknown.
        expression: Option<String>,
    },
    /// Rendering exceeds the step limit.
    #[error("too many steps: shorten the loops of the template")]
    TooManySteps,
    /// The request that renders the templates has used up its budget, or was stopped.
    #[error("the request has used up its budget for rendering templates")]
    BudgetSpent,
    /// An error of the template engine, such as invalid syntax.
    #[error("{0}")]
    Engine(String),
}
