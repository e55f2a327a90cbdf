//! Upper bound of the memory that a template can use, computed from its source.
//!
//! The engine counts steps while it renders a template, but one step can concatenate two texts and
//! the next one two of those: thirty steps turn a letter into a gigabyte. This analysis computes an
//! upper bound for the value of each expression from the source of the template, before any of it
//! is evaluated: a fixed number of bytes, plus a multiple of the size of the recipient's data.

use std::collections::BTreeMap;
use std::ops::Add;

use minijinja::machinery::ast::{BinOpKind, CallArg, CallType, Expr, Stmt};
use minijinja::machinery::{Span, ast, parse};
use minijinja::syntax::SyntaxConfig;

use super::filters;
use super::template_error::{TemplateError, TemplateErrorKind};

/// Bytes that every value uses, whatever its type.
const VALUE_BYTES: u64 = 64;
/// Growth factor of a text that is escaped or written as a program literal; control characters are
/// the worst case.
const LITERAL_GROWTH: u64 = 8;
/// Growth factor of a text when each of its characters becomes a value of its own.
const SPLIT_GROWTH: u64 = 64;
/// Maximum number of elements of a range; the template engine enforces this limit.
const RANGE_ITEMS_MAX: u64 = 100_000;
/// Maximum nesting depth of loops.
const NESTED_LOOPS_MAX: usize = 5;

/// Upper bound of the size of a value, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ByteBound {
    /// Bytes that do not depend on the recipient.
    pub(crate) fixed: u64,
    /// Factor of the size of the recipient's data, which is added to `fixed`.
    pub(crate) row_factor: u64,
}

impl ByteBound {
    const fn fixed_bytes(fixed: u64) -> Self {
        Self {
            fixed,
            row_factor: 0,
        }
    }

    fn times(self, factor: u64) -> Self {
        Self {
            fixed: self.fixed.saturating_mul(factor),
            row_factor: self.row_factor.saturating_mul(factor),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            fixed: self.fixed.max(other.fixed),
            row_factor: self.row_factor.max(other.row_factor),
        }
    }

    /// Returns the bound in bytes for a recipient whose data has `row` bytes.
    pub(crate) fn for_row_bytes(self, row: u64) -> u64 {
        self.fixed
            .saturating_add(self.row_factor.saturating_mul(row))
    }
}

impl Add for ByteBound {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed.saturating_add(other.fixed),
            row_factor: self.row_factor.saturating_add(other.row_factor),
        }
    }
}

/// The possible types of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateValueKind {
    /// A number that cannot repeat a text or a list.
    Float,
    Number,
    Text,
    Any,
}

/// The possible type and the maximum size of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValueBound {
    kind: TemplateValueKind,
    bytes: ByteBound,
}

impl ValueBound {
    const NUMBER: Self = Self {
        kind: TemplateValueKind::Number,
        bytes: ByteBound::fixed_bytes(VALUE_BYTES),
    };
    const FLOAT: Self = Self {
        kind: TemplateValueKind::Float,
        bytes: ByteBound::fixed_bytes(VALUE_BYTES),
    };
    /// A value from the recipient's data.
    const RECIPIENT_VALUE: Self = Self {
        kind: TemplateValueKind::Any,
        bytes: ByteBound {
            fixed: VALUE_BYTES,
            row_factor: 1,
        },
    };

    const fn text_bound(bytes: ByteBound) -> Self {
        Self {
            kind: TemplateValueKind::Text,
            bytes,
        }
    }

    const fn any_bound(bytes: ByteBound) -> Self {
        Self {
            kind: TemplateValueKind::Any,
            bytes,
        }
    }

    /// The bound of the value as text: a value that is not a text is written as a program literal.
    fn printed_bytes(self) -> ByteBound {
        if self.kind == TemplateValueKind::Any {
            self.bytes.times(LITERAL_GROWTH)
        } else {
            self.bytes
        }
    }

    const fn is_number(self) -> bool {
        matches!(
            self.kind,
            TemplateValueKind::Number | TemplateValueKind::Float
        )
    }

    /// The bound of a value that is one of the two.
    fn or(self, other: Self) -> Self {
        let kind = if self.kind == other.kind {
            self.kind
        } else {
            TemplateValueKind::Any
        };
        Self {
            kind,
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// Returns the bound of all memory that a template uses at one time for computed and assigned
/// values. Fails if an expression has no bound below `limit`. A template with a syntax error gets
/// an empty bound: the parser reports the error.
pub(crate) fn bound_template_memory(
    template: &str,
    limit: u64,
) -> Result<ByteBound, TemplateError> {
    let Ok(parsed) = parse(template, "", SyntaxConfig::default()) else {
        return Ok(ByteBound::default());
    };
    let mut analyzer = BoundAnalyzer {
        limit,
        scopes: vec![BTreeMap::new()],
        assigned: ByteBound::default(),
        largest: ByteBound::default(),
        loop_depth: 0,
    };
    analyzer.visit_statement(&parsed)?;
    Ok(analyzer.assigned + analyzer.largest)
}

struct BoundAnalyzer<'a> {
    limit: u64,
    /// Assigned variables, per open block.
    scopes: Vec<BTreeMap<&'a str, ValueBound>>,
    /// Bound of all assigned variables together.
    assigned: ByteBound,
    /// The largest bound of a single expression.
    largest: ByteBound,
    loop_depth: usize,
}

impl<'a> BoundAnalyzer<'a> {
    fn visit_statements(&mut self, statements: &[Stmt<'a>]) -> Result<(), TemplateError> {
        statements
            .iter()
            .try_for_each(|statement| self.visit_statement(statement))
    }

    fn visit_statement(&mut self, statement: &Stmt<'a>) -> Result<(), TemplateError> {
        match statement {
            Stmt::Template(it) => self.visit_statements(&it.children),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(it) => self.bound_expression(&it.expr).map(drop),
            Stmt::Do(it) => self.bound_call(&it.call).map(drop),
            Stmt::IfCond(it) => {
                self.bound_expression(&it.expr)?;
                self.visit_statements(&it.true_body)?;
                self.visit_statements(&it.false_body)
            }
            Stmt::AutoEscape(it) => {
                self.bound_expression(&it.enabled)?;
                self.visit_statements(&it.body)
            }
            Stmt::Set(it) => {
                let bound = self.bound_expression(&it.expr)?;
                self.assign_target(&it.target, bound)
            }
            Stmt::WithBlock(it) => {
                self.scopes.push(BTreeMap::new());
                for (target, value) in &it.assignments {
                    let bound = self.bound_expression(value)?;
                    self.assign_target(target, bound)?;
                }
                self.visit_statements(&it.body)?;
                self.scopes.pop();
                Ok(())
            }
            Stmt::ForLoop(it) => self.visit_for_loop(it, it.span()),
            // Output captured by these blocks is not counted by the output limit.
            Stmt::SetBlock(it) => Err(error_at(it.span(), TemplateErrorKind::SetBlock)),
            Stmt::FilterBlock(it) => Err(error_at(it.span(), TemplateErrorKind::FilterBlock)),
        }
    }

    fn visit_for_loop(&mut self, it: &ast::ForLoop<'a>, span: Span) -> Result<(), TemplateError> {
        // A loop produces the numbers of a range one by one, so they are never in memory together.
        let elements = match &it.iter {
            Expr::Call(call) if matches!(call.identify_call(), CallType::Function("range")) => {
                self.bound_arguments(&call.args)?;
                ValueBound::NUMBER
            }
            iter => ValueBound::any_bound(self.bound_expression(iter)?.bytes),
        };
        if self.loop_depth == NESTED_LOOPS_MAX {
            let kind = TemplateErrorKind::NestedLoops {
                loops_max: NESTED_LOOPS_MAX,
            };
            return Err(error_at(span, kind));
        }
        self.loop_depth += 1;
        self.scopes.push(BTreeMap::from([(
            "loop",
            ValueBound::any_bound(ByteBound::fixed_bytes(VALUE_BYTES * 16)),
        )]));
        self.assign_target(&it.target, elements)?;
        if let Some(filter) = &it.filter_expr {
            self.bound_expression(filter)?;
        }
        self.visit_statements(&it.body)?;
        // A second iteration, which uses the values that the first one assigned, must not increase
        // any bound.
        let scopes = self.scopes.clone();
        let assigned = self.assigned;
        self.visit_statements(&it.body)?;
        if scopes != self.scopes {
            return Err(error_at(span, TemplateErrorKind::GrowingVariable));
        }
        self.assigned = assigned;
        self.scopes.pop();
        self.loop_depth -= 1;
        self.visit_statements(&it.else_body)
    }

    /// Assigns a bound to a variable. The variable may keep its previous value (in another branch),
    /// so the new bound covers both.
    fn assign_target(&mut self, target: &Expr<'a>, bound: ValueBound) -> Result<(), TemplateError> {
        let names: &[Expr<'a>] = match target {
            Expr::Var(it) => {
                let previous = self
                    .scopes
                    .iter()
                    .rev()
                    .find_map(|scope| scope.get(it.id).copied());
                let bound = previous.map_or(bound, |previous| previous.or(bound));
                self.assigned = self.assigned + bound.bytes;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.insert(it.id, bound);
                }
                return self.check_limit(self.assigned, it.span());
            }
            Expr::List(it) => &it.items,
            Expr::Tuple(it) => &it.items,
            _ => return Ok(()),
        };
        names
            .iter()
            .try_for_each(|name| self.assign_target(name, ValueBound::any_bound(bound.bytes)))
    }

    fn bound_expression(&mut self, expression: &Expr<'a>) -> Result<ValueBound, TemplateError> {
        let bound = match expression {
            Expr::Var(it) => {
                let assigned = self
                    .scopes
                    .iter()
                    .rev()
                    .find_map(|scope| scope.get(it.id).copied());
                assigned.unwrap_or(ValueBound::RECIPIENT_VALUE)
            }
            Expr::Const(it) => match it.value.as_str() {
                Some(text) => {
                    ValueBound::text_bound(ByteBound::fixed_bytes(VALUE_BYTES + text.len() as u64))
                }
                None if it.value.is_integer() => ValueBound::NUMBER,
                None => ValueBound::FLOAT,
            },
            Expr::Slice(it) => {
                for part in [&it.start, &it.stop, &it.step].into_iter().flatten() {
                    self.bound_expression(part)?;
                }
                self.bound_expression(&it.expr)?
            }
            Expr::UnaryOp(it) => {
                self.bound_expression(&it.expr)?;
                ValueBound::NUMBER
            }
            Expr::BinOp(it) => self.bound_binary_op(it)?,
            Expr::Compare(it) => {
                self.bound_expression(&it.expr)?;
                for other in &it.ops {
                    self.bound_expression(&other.expr)?;
                }
                ValueBound::NUMBER
            }
            Expr::IfExpr(it) => {
                self.bound_expression(&it.test_expr)?;
                let true_bound = self.bound_expression(&it.true_expr)?;
                let false_bound = it
                    .false_expr
                    .as_ref()
                    .map(|expr| self.bound_expression(expr))
                    .transpose()?;
                false_bound.map_or(true_bound, |bound| true_bound.or(bound))
            }
            Expr::Filter(it) => self.bound_filter(it, it.span())?,
            Expr::Test(it) => {
                self.bound_expression(&it.expr)?;
                self.bound_arguments(&it.args)?;
                ValueBound::NUMBER
            }
            Expr::GetAttr(it) => ValueBound::any_bound(self.bound_expression(&it.expr)?.bytes),
            Expr::GetItem(it) => {
                self.bound_expression(&it.subscript_expr)?;
                ValueBound::any_bound(self.bound_expression(&it.expr)?.bytes)
            }
            Expr::Call(it) => self.bound_call(it)?,
            Expr::List(it) => self.bound_collection(it.items.iter())?,
            Expr::Tuple(it) => self.bound_collection(it.items.iter())?,
            Expr::Map(it) => self.bound_collection(it.keys.iter().chain(&it.values))?,
        };
        self.check_limit(bound.bytes, expression.span())?;
        Ok(bound)
    }

    fn bound_collection<'e>(
        &mut self,
        items: impl Iterator<Item = &'e Expr<'a>>,
    ) -> Result<ValueBound, TemplateError>
    where
        'a: 'e,
    {
        let mut bytes = ByteBound::fixed_bytes(VALUE_BYTES);
        for item in items {
            bytes =
                bytes + self.bound_expression(item)?.bytes + ByteBound::fixed_bytes(VALUE_BYTES);
        }
        Ok(ValueBound::any_bound(bytes))
    }

    fn bound_arguments(&mut self, arguments: &[CallArg<'a>]) -> Result<ByteBound, TemplateError> {
        let mut bytes = ByteBound::default();
        for argument in arguments {
            let (CallArg::Pos(it)
            | CallArg::Kwarg(_, it)
            | CallArg::PosSplat(it)
            | CallArg::KwargSplat(it)) = argument;
            bytes = bytes + self.bound_expression(it)?.printed_bytes();
        }
        Ok(bytes)
    }

    fn bound_call(&mut self, call: &ast::Call<'a>) -> Result<ValueBound, TemplateError> {
        let arguments = self.bound_arguments(&call.args)?;
        Ok(match call.identify_call() {
            CallType::Function("range") => {
                ValueBound::any_bound(ByteBound::fixed_bytes(RANGE_ITEMS_MAX * VALUE_BYTES))
            }
            CallType::Method(receiver, _) => {
                ValueBound::any_bound(self.bound_expression(receiver)?.bytes + arguments)
            }
            _ => ValueBound::any_bound(arguments + ByteBound::fixed_bytes(VALUE_BYTES)),
        })
    }

    fn bound_binary_op(&mut self, it: &ast::BinOp<'a>) -> Result<ValueBound, TemplateError> {
        let (left, right) = (
            self.bound_expression(&it.left)?,
            self.bound_expression(&it.right)?,
        );
        Ok(match it.op {
            BinOpKind::Concat => {
                ValueBound::text_bound(left.printed_bytes() + right.printed_bytes())
            }
            BinOpKind::Add if left.is_number() || right.is_number() => ValueBound::NUMBER,
            BinOpKind::Add => ValueBound {
                bytes: left.bytes + right.bytes,
                ..left.or(right)
            },
            BinOpKind::Mul
                if left.kind == TemplateValueKind::Float
                    || right.kind == TemplateValueKind::Float =>
            {
                ValueBound::FLOAT
            }
            BinOpKind::Mul if left.is_number() && right.is_number() => ValueBound::NUMBER,
            BinOpKind::Mul => {
                let count = |side: &Expr<'a>| side.as_const()?.as_usize().map(|count| count as u64);
                let (other, times) = match (count(&it.left), count(&it.right)) {
                    (Some(times), _) => (right, times),
                    (_, Some(times)) => (left, times),
                    // A text repeated a number of times that the template does not fix.
                    (None, None) => {
                        let kind = TemplateErrorKind::AmbiguousProduct;
                        return Err(error_at(it.left.span(), kind));
                    }
                };
                ValueBound {
                    bytes: other.bytes.times(times),
                    ..other
                }
            }
            BinOpKind::ScAnd | BinOpKind::ScOr => left.or(right),
            BinOpKind::Div => ValueBound::FLOAT,
            BinOpKind::Sub | BinOpKind::FloorDiv | BinOpKind::Rem | BinOpKind::Pow => {
                ValueBound::NUMBER
            }
            BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte => ValueBound::NUMBER,
            BinOpKind::In => ValueBound::NUMBER,
        })
    }

    fn bound_filter(
        &mut self,
        it: &ast::Filter<'a>,
        span: Span,
    ) -> Result<ValueBound, TemplateError> {
        let Some(value) = &it.expr else {
            return Ok(ValueBound::RECIPIENT_VALUE);
        };
        let bound = self.bound_expression(value)?;
        let arguments = self.bound_arguments(&it.args)?;
        if it.name == "map" {
            return bound_map_filter(it, bound, span);
        }
        bound_filter_output(it.name, bound, arguments)
            .ok_or_else(|| error_at(span, TemplateErrorKind::UnknownFilter(it.name.to_owned())))
    }

    fn check_limit(&mut self, bytes: ByteBound, span: Span) -> Result<(), TemplateError> {
        self.largest = self.largest.max(bytes);
        if bytes.fixed > self.limit || bytes.row_factor > self.limit {
            let kind = TemplateErrorKind::MemoryBound {
                mib_max: self.limit >> 20,
            };
            return Err(error_at(span, kind));
        }
        Ok(())
    }
}

fn error_at(span: Span, kind: TemplateErrorKind) -> TemplateError {
    TemplateError::at_line(usize::from(span.start_line), kind)
}

/// Returns the bound of a filter's output, or `None` if the filter does not exist.
fn bound_filter_output(name: &str, bound: ValueBound, arguments: ByteBound) -> Option<ValueBound> {
    Some(match name {
        "safe" => bound,
        "trim" | "string" => ValueBound::text_bound(bound.printed_bytes()),
        "attr" | "first" | "last" | "min" | "max" | "sum" => ValueBound::any_bound(bound.bytes),
        "lower" | "upper" | "title" | "capitalize" => {
            ValueBound::text_bound(bound.printed_bytes().times(3))
        }
        "escape" | "e" | "urlencode" => {
            ValueBound::text_bound(bound.printed_bytes().times(LITERAL_GROWTH))
        }
        "tojson" => ValueBound::text_bound(bound.bytes.times(LITERAL_GROWTH)),
        // Our own implementations, which enforce this limit.
        "replace" | "join" | "format" => {
            ValueBound::text_bound(ByteBound::fixed_bytes(filters::TEXT_BYTES_MAX as u64))
        }
        "float" => ValueBound::FLOAT,
        "int" | "length" | "count" | "bool" | "abs" => ValueBound::NUMBER,
        "round" => bound.or(ValueBound::NUMBER),
        "default" | "d" => ValueBound {
            bytes: bound.bytes + arguments,
            kind: TemplateValueKind::Any,
        },
        "list" | "split" | "lines" | "sort" | "unique" | "reverse" | "items" | "dictsort"
        | "groupby" | "select" | "reject" | "selectattr" | "rejectattr" => {
            ValueBound::any_bound(bound.bytes.times(SPLIT_GROWTH) + arguments)
        }
        _ => return None,
    })
}

/// Returns the bound of `map`. It accepts an attribute, or a filter that needs no arguments.
fn bound_map_filter(
    it: &ast::Filter<'_>,
    bound: ValueBound,
    span: Span,
) -> Result<ValueBound, TemplateError> {
    let each = match it.args.as_slice() {
        [CallArg::Kwarg("attribute", _)]
        | [CallArg::Kwarg("attribute", _), CallArg::Kwarg("default", _)] => Some(bound),
        [CallArg::Pos(Expr::Const(name))] => {
            let name = name.value.as_str().unwrap_or_default();
            let needs_no_arguments =
                !matches!(name, "replace" | "join" | "format" | "default" | "d");
            bound_filter_output(
                name,
                ValueBound::any_bound(bound.bytes),
                ByteBound::default(),
            )
            .filter(|_| needs_no_arguments)
        }
        _ => None,
    };
    each.map(|each| ValueBound::any_bound(each.bytes.times(SPLIT_GROWTH)))
        .ok_or_else(|| error_at(span, TemplateErrorKind::MapArguments))
}
