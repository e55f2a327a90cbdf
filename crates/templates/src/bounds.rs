//! How much memory a template can take, as far as its text tells.
//!
//! Steps are counted while a template is filled in, but a step can make one text of two, and the next one of two of those:
//! thirty of them make a gigabyte of a letter. What each expression can come to at most is worked out from the text of the
//! template, before anything of it is computed: so many bytes, and so many times what is known of a recipient.

use std::collections::BTreeMap;
use std::ops::Add;

use minijinja::machinery::ast::{BinOpKind, CallArg, CallType, Expr, Stmt};
use minijinja::machinery::{Span, ast, parse};
use minijinja::syntax::SyntaxConfig;

/// Bytes that a value takes whatever it is.
const VALUE: u64 = 64;
/// Times that a text grows when it is written as it would be in a program; control characters are the worst.
const WRITTEN: u64 = 8;
/// Times that a text grows when each of its characters is a value of its own.
const APART: u64 = 64;
/// Elements of a range, at most: the engine has this limit.
const RANGE: u64 = 100_000;
/// What is said of a product that may be a text, repeated as often as a recipient's data says.
const UNCLEAR: &str = "may repeat a text: say that these are numbers, as in `price|float * count`";
/// Loops within loops.
const LOOPS_MAX: usize = 5;

/// Bytes that a value can come to at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bytes {
    /// Whoever it is for.
    pub(crate) fixed: u64,
    /// And so many times those that are known of a recipient.
    pub(crate) rows: u64,
}

impl Bytes {
    const fn fixed(fixed: u64) -> Self {
        Self { fixed, rows: 0 }
    }

    fn times(self, factor: u64) -> Self {
        Self { fixed: self.fixed.saturating_mul(factor), rows: self.rows.saturating_mul(factor) }
    }

    fn max(self, other: Self) -> Self {
        Self { fixed: self.fixed.max(other.fixed), rows: self.rows.max(other.rows) }
    }

    /// For a recipient of whom so many are known.
    pub(crate) fn of(self, row: u64) -> u64 {
        self.fixed.saturating_add(self.rows.saturating_mul(row))
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { fixed: self.fixed.saturating_add(other.fixed), rows: self.rows.saturating_add(other.rows) }
    }
}

/// What a value can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number that nothing can be repeated by.
    Fraction,
    Number,
    Text,
    Anything,
}

/// What an expression can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    kind: Kind,
    bytes: Bytes,
}

impl Bound {
    const NUMBER: Self = Self { kind: Kind::Number, bytes: Bytes::fixed(VALUE) };
    const FRACTION: Self = Self { kind: Kind::Fraction, bytes: Bytes::fixed(VALUE) };
    /// Something that is known of a recipient.
    const KNOWN: Self = Self { kind: Kind::Anything, bytes: Bytes { fixed: VALUE, rows: 1 } };

    const fn text(bytes: Bytes) -> Self {
        Self { kind: Kind::Text, bytes }
    }

    const fn anything(bytes: Bytes) -> Self {
        Self { kind: Kind::Anything, bytes }
    }

    /// As a text: what is none is written as it would be in a program.
    fn written(self) -> Bytes {
        if self.kind == Kind::Anything { self.bytes.times(WRITTEN) } else { self.bytes }
    }

    const fn is_number(self) -> bool {
        matches!(self.kind, Kind::Number | Kind::Fraction)
    }

    /// One or the other.
    fn or(self, other: Self) -> Self {
        let kind = if self.kind == other.kind { self.kind } else { Kind::Anything };
        Self { kind, bytes: self.bytes.max(other.bytes) }
    }
}

/// Where a template cannot be bounded, and why.
type Refused = (usize, String);

/// What a template can take in memory: all that it computes and keeps at one time. Nothing is said of one that cannot be parsed,
/// which is for the parser to say.
pub(crate) fn of(template: &str, limit: u64) -> Result<Bytes, Refused> {
    let Ok(parsed) = parse(template, "", SyntaxConfig::default()) else { return Ok(Bytes::default()) };
    let mut walk =
        Walk { limit, scopes: vec![BTreeMap::new()], kept: Bytes::default(), most: Bytes::default(), loops: 0 };
    walk.statement(&parsed)?;
    Ok(walk.kept + walk.most)
}

struct Walk<'a> {
    limit: u64,
    /// What was set, in each block that is open.
    scopes: Vec<BTreeMap<&'a str, Bound>>,
    /// What is kept under a name, altogether.
    kept: Bytes,
    /// The most that one expression comes to.
    most: Bytes,
    loops: usize,
}

impl<'a> Walk<'a> {
    fn statements(&mut self, statements: &[Stmt<'a>]) -> Result<(), Refused> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'a>) -> Result<(), Refused> {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(it) => self.expression(&it.expr).map(drop),
            Stmt::Do(it) => self.call(&it.call).map(drop),
            Stmt::IfCond(it) => {
                self.expression(&it.expr)?;
                self.statements(&it.true_body)?;
                self.statements(&it.false_body)
            }
            Stmt::AutoEscape(it) => {
                self.expression(&it.enabled)?;
                self.statements(&it.body)
            }
            Stmt::Set(it) => {
                let bound = self.expression(&it.expr)?;
                self.keep(&it.target, bound)
            }
            Stmt::WithBlock(it) => {
                self.scopes.push(BTreeMap::new());
                for (target, value) in &it.assignments {
                    let bound = self.expression(value)?;
                    self.keep(target, bound)?;
                }
                self.statements(&it.body)?;
                self.scopes.pop();
                Ok(())
            }
            Stmt::ForLoop(it) => self.for_loop(it, it.span()),
            // What is printed into these is not counted as what is printed otherwise is.
            Stmt::SetBlock(it) => Err(refused(it.span(), "`set` needs a value: `{% set name = … %}`")),
            Stmt::FilterBlock(it) => Err(refused(it.span(), "there are no blocks of `filter`")),
        }
    }

    fn for_loop(&mut self, it: &ast::ForLoop<'a>, span: Span) -> Result<(), Refused> {
        // Numbers that are counted one by one are never there together.
        let elements = match &it.iter {
            Expr::Call(call) if matches!(call.identify_call(), CallType::Function("range")) => {
                self.arguments(&call.args)?;
                Bound::NUMBER
            }
            iter => Bound::anything(self.expression(iter)?.bytes),
        };
        if self.loops == LOOPS_MAX {
            return Err(refused(span, &format!("there are more than {LOOPS_MAX} loops within each other")));
        }
        self.loops += 1;
        self.scopes.push(BTreeMap::from([("loop", Bound::anything(Bytes::fixed(VALUE * 16)))]));
        self.keep(&it.target, elements)?;
        if let Some(filter) = &it.filter_expr {
            self.expression(filter)?;
        }
        self.statements(&it.body)?;
        // What one round makes of what the one before has made must not be more.
        let first = self.scopes.clone();
        let kept = self.kept;
        self.statements(&it.body)?;
        if first != self.scopes {
            return Err(refused(span, "something becomes longer each time around"));
        }
        self.kept = kept;
        self.scopes.pop();
        self.loops -= 1;
        self.statements(&it.else_body)
    }

    /// A value gets a name. It may have had another before, and may have it still.
    fn keep(&mut self, target: &Expr<'a>, bound: Bound) -> Result<(), Refused> {
        let names: &[Expr<'a>] = match target {
            Expr::Var(it) => {
                let before = self.scopes.iter().rev().find_map(|scope| scope.get(it.id).copied());
                let bound = before.map_or(bound, |before| before.or(bound));
                self.kept = self.kept + bound.bytes;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.insert(it.id, bound);
                }
                return self.fits(self.kept, it.span());
            }
            Expr::List(it) => &it.items,
            Expr::Tuple(it) => &it.items,
            _ => return Ok(()),
        };
        names.iter().try_for_each(|name| self.keep(name, Bound::anything(bound.bytes)))
    }

    fn expression(&mut self, expression: &Expr<'a>) -> Result<Bound, Refused> {
        let bound = match expression {
            Expr::Var(it) => {
                let set = self.scopes.iter().rev().find_map(|scope| scope.get(it.id).copied());
                set.unwrap_or(Bound::KNOWN)
            }
            Expr::Const(it) => match it.value.as_str() {
                Some(text) => Bound::text(Bytes::fixed(VALUE + text.len() as u64)),
                None if it.value.is_integer() => Bound::NUMBER,
                None => Bound::FRACTION,
            },
            Expr::Slice(it) => {
                for part in [&it.start, &it.stop, &it.step].into_iter().flatten() {
                    self.expression(part)?;
                }
                self.expression(&it.expr)?
            }
            Expr::UnaryOp(it) => {
                self.expression(&it.expr)?;
                Bound::NUMBER
            }
            Expr::BinOp(it) => self.binary(it)?,
            Expr::Compare(it) => {
                self.expression(&it.expr)?;
                for other in &it.ops {
                    self.expression(&other.expr)?;
                }
                Bound::NUMBER
            }
            Expr::IfExpr(it) => {
                self.expression(&it.test_expr)?;
                let yes = self.expression(&it.true_expr)?;
                let no = it.false_expr.as_ref().map(|no| self.expression(no)).transpose()?;
                no.map_or(yes, |no| yes.or(no))
            }
            Expr::Filter(it) => self.filter(it, it.span())?,
            Expr::Test(it) => {
                self.expression(&it.expr)?;
                self.arguments(&it.args)?;
                Bound::NUMBER
            }
            Expr::GetAttr(it) => Bound::anything(self.expression(&it.expr)?.bytes),
            Expr::GetItem(it) => {
                self.expression(&it.subscript_expr)?;
                Bound::anything(self.expression(&it.expr)?.bytes)
            }
            Expr::Call(it) => self.call(it)?,
            Expr::List(it) => self.all(it.items.iter())?,
            Expr::Tuple(it) => self.all(it.items.iter())?,
            Expr::Map(it) => self.all(it.keys.iter().chain(&it.values))?,
        };
        self.fits(bound.bytes, expression.span())?;
        Ok(bound)
    }

    fn all<'e>(&mut self, items: impl Iterator<Item = &'e Expr<'a>>) -> Result<Bound, Refused>
    where
        'a: 'e,
    {
        let mut bytes = Bytes::fixed(VALUE);
        for item in items {
            bytes = bytes + self.expression(item)?.bytes + Bytes::fixed(VALUE);
        }
        Ok(Bound::anything(bytes))
    }

    fn arguments(&mut self, arguments: &[CallArg<'a>]) -> Result<Bytes, Refused> {
        let mut bytes = Bytes::default();
        for argument in arguments {
            let (CallArg::Pos(it) | CallArg::Kwarg(_, it) | CallArg::PosSplat(it) | CallArg::KwargSplat(it)) = argument;
            bytes = bytes + self.expression(it)?.written();
        }
        Ok(bytes)
    }

    fn call(&mut self, call: &ast::Call<'a>) -> Result<Bound, Refused> {
        let arguments = self.arguments(&call.args)?;
        Ok(match call.identify_call() {
            CallType::Function("range") => Bound::anything(Bytes::fixed(RANGE * VALUE)),
            CallType::Method(on, _) => Bound::anything(self.expression(on)?.bytes + arguments),
            _ => Bound::anything(arguments + Bytes::fixed(VALUE)),
        })
    }

    fn binary(&mut self, it: &ast::BinOp<'a>) -> Result<Bound, Refused> {
        let (left, right) = (self.expression(&it.left)?, self.expression(&it.right)?);
        Ok(match it.op {
            BinOpKind::Concat => Bound::text(left.written() + right.written()),
            BinOpKind::Add if left.is_number() || right.is_number() => Bound::NUMBER,
            BinOpKind::Add => Bound { bytes: left.bytes + right.bytes, ..left.or(right) },
            BinOpKind::Mul if left.kind == Kind::Fraction || right.kind == Kind::Fraction => Bound::FRACTION,
            BinOpKind::Mul if left.is_number() && right.is_number() => Bound::NUMBER,
            BinOpKind::Mul => {
                let count = |side: &Expr<'a>| side.as_const()?.as_usize().map(|count| count as u64);
                let (other, times) = match (count(&it.left), count(&it.right)) {
                    (Some(times), _) => (right, times),
                    (_, Some(times)) => (left, times),
                    // A text, as often as somebody says.
                    (None, None) => return Err(refused(it.left.span(), UNCLEAR)),
                };
                Bound { bytes: other.bytes.times(times), ..other }
            }
            BinOpKind::ScAnd | BinOpKind::ScOr => left.or(right),
            BinOpKind::Div => Bound::FRACTION,
            BinOpKind::Sub | BinOpKind::FloorDiv | BinOpKind::Rem | BinOpKind::Pow => Bound::NUMBER,
            BinOpKind::Eq | BinOpKind::Ne | BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => {
                Bound::NUMBER
            }
            BinOpKind::In => Bound::NUMBER,
        })
    }

    fn filter(&mut self, it: &ast::Filter<'a>, span: Span) -> Result<Bound, Refused> {
        let Some(on) = &it.expr else { return Ok(Bound::KNOWN) };
        let (bound, arguments) = (self.expression(on)?, self.arguments(&it.args)?);
        if it.name == "map" {
            return mapped(it, bound, span);
        }
        grown(it.name, bound, arguments).ok_or_else(|| refused(span, &format!("there is no filter `{}`", it.name)))
    }

    fn fits(&mut self, bytes: Bytes, span: Span) -> Result<(), Refused> {
        self.most = self.most.max(bytes);
        if bytes.fixed > self.limit || bytes.rows > self.limit {
            return Err(refused(span, &format!("could come to more than {} MiB", self.limit >> 20)));
        }
        Ok(())
    }
}

fn refused(span: Span, reason: &str) -> Refused {
    (usize::from(span.start_line), reason.to_owned())
}

/// What a filter makes of something; nothing if there is no such filter.
fn grown(name: &str, bound: Bound, arguments: Bytes) -> Option<Bound> {
    Some(match name {
        "safe" => bound,
        "trim" | "string" => Bound::text(bound.written()),
        "attr" | "first" | "last" | "min" | "max" | "sum" => Bound::anything(bound.bytes),
        "lower" | "upper" | "title" | "capitalize" => Bound::text(bound.written().times(3)),
        "escape" | "e" | "urlencode" => Bound::text(bound.written().times(WRITTEN)),
        "tojson" => Bound::text(bound.bytes.times(WRITTEN)),
        // Ours, which have this limit themselves.
        "replace" | "join" | "format" => Bound::text(Bytes::fixed(crate::filters::TEXT_BYTES_MAX as u64)),
        "float" => Bound::FRACTION,
        "int" | "length" | "count" | "bool" | "abs" => Bound::NUMBER,
        "round" => bound.or(Bound::NUMBER),
        "default" | "d" => Bound { bytes: bound.bytes + arguments, kind: Kind::Anything },
        "list" | "split" | "lines" | "sort" | "unique" | "reverse" | "items" | "dictsort" | "groupby" | "select"
        | "reject" | "selectattr" | "rejectattr" => Bound::anything(bound.bytes.times(APART) + arguments),
        _ => return None,
    })
}

/// A filter on each of many things: one that needs nothing besides them.
fn mapped(it: &ast::Filter<'_>, bound: Bound, span: Span) -> Result<Bound, Refused> {
    let each = match it.args.as_slice() {
        [CallArg::Kwarg("attribute", _)] | [CallArg::Kwarg("attribute", _), CallArg::Kwarg("default", _)] => {
            Some(bound)
        }
        [CallArg::Pos(Expr::Const(name))] => {
            let name = name.value.as_str().unwrap_or_default();
            let is_alone = !matches!(name, "replace" | "join" | "format" | "default" | "d");
            grown(name, Bound::anything(bound.bytes), Bytes::default()).filter(|_| is_alone)
        }
        _ => None,
    };
    let reason = "`map` takes an attribute, or the name of a filter that needs nothing else";
    each.map(|each| Bound::anything(each.bytes.times(APART))).ok_or_else(|| refused(span, reason))
}
