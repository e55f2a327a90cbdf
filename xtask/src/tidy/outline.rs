//! What a Rust file says, read from its tokens: paths and macros it mentions, types and functions it declares, strings
//! it holds. Comments are no tokens, so only code counts; macro bodies are tokens, so what hides in one counts too.

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};

/// Whether code is part of the product, or compiled for tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Product,
    Test,
}

/// A path such as `std::fs::read`; imports are flattened, so `use std::{fs, io}` mentions two.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) segments: Vec<String>,
    pub(crate) form: Form,
    pub(crate) line: usize,
    pub(crate) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Path,
    MacroCall,
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Type,
    Module,
}

/// A function with a body; the name carries the modules and the type around it.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) length_lines: usize,
}

/// A string literal as written between its quotes.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) content: String,
    pub(crate) line: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) mentions: Vec<Mention>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) functions: Vec<Function>,
    pub(crate) strings: Vec<Text>,
    /// The lines of attributes that silence a lint without expecting it.
    pub(crate) allows: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// What surrounds the tokens being walked.
#[derive(Clone)]
struct Scope {
    /// The modules and the type around, each followed by `::`.
    owner: String,
    /// The path before the braces of an import.
    prefix: Vec<String>,
    place: Place,
}

impl Outline {
    pub(crate) fn parse(text: &str) -> Result<Self, Unreadable> {
        let stream: TokenStream =
            text.parse()
                .map_err(|error: proc_macro2::LexError| Unreadable {
                    line: line_of(error.span()),
                    what: format!("not Rust that can be read ({error}): make it compile first"),
                })?;
        let mut outline = Self::default();
        let scope = Scope {
            owner: String::new(),
            prefix: Vec::new(),
            place: Place::Product,
        };
        outline.walk(&trees(stream), scope);
        Ok(outline)
    }

    fn walk(&mut self, tokens: &[TokenTree], mut scope: Scope) {
        let mut next_owner = None;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    self.attribute(tokens, at, &mut scope)
                }
                TokenTree::Punct(_) => at + 1,
                TokenTree::Literal(literal) => {
                    self.string(literal);
                    at + 1
                }
                TokenTree::Group(group) => {
                    let owner = match group.delimiter() {
                        Delimiter::Brace => next_owner.take(),
                        _ => None,
                    };
                    self.group(group, &scope, owner.as_deref());
                    at + 1
                }
                TokenTree::Ident(word) if word == "as" && !scope.prefix.is_empty() => at + 2,
                TokenTree::Ident(word) => {
                    next_owner = self.declaration(tokens, at, word, &scope).or(next_owner);
                    self.path(tokens, at, &scope)
                }
            };
        }
    }

    fn group(&mut self, group: &Group, scope: &Scope, owner: Option<&str>) {
        let mut inner = scope.clone();
        if let Some(owner) = owner {
            inner.owner.push_str(owner);
            inner.owner.push_str("::");
        }
        self.walk(&trees(group.stream()), inner);
    }

    /// Reads `#[…]` or `#![…]` at `at`; what it marks as a test is walked as one. Returns where to go on.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize, scope: &mut Scope) -> usize {
        let inner = is_punct(tokens.get(at + 1), '!');
        let group_at = if inner { at + 2 } else { at + 1 };
        let Some(group) = group_in(tokens, group_at, Delimiter::Bracket) else {
            return at + 1;
        };
        let after = group_at + 1;
        let written = compact(&group.stream());
        if is_allow(&written) {
            self.allows.push(line_of(group.span_open()));
        }
        if !written.starts_with("doc=") {
            self.group(group, scope, None);
        }
        if !is_test_only(&written) {
            return after;
        }
        if inner {
            scope.place = Place::Test;
            return after;
        }
        let end = item_end(tokens, after);
        let place = Place::Test;
        self.walk(
            &tokens[after..end],
            Scope {
                place,
                ..scope.clone()
            },
        );
        end
    }

    /// Notes what the keyword at `at` declares. Returns the owner of what the next braces hold, if it names one.
    fn declaration(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        keyword: &Ident,
        scope: &Scope,
    ) -> Option<String> {
        let keyword_text = keyword.to_string();
        if keyword_text == "impl" {
            return Some(implemented_type(&tokens[at + 1..]));
        }
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            return None;
        };
        let name = plain(name);
        let kind = match keyword_text.as_str() {
            "struct" | "enum" | "union" | "trait" | "type" => Kind::Type,
            "mod" => Kind::Module,
            "fn" => {
                self.function(&tokens[at..], &format!("{}{name}", scope.owner));
                return None;
            }
            _ => return None,
        };
        self.declarations.push(Declaration {
            kind,
            name: name.clone(),
            line: line_of(keyword.span()),
            place: scope.place,
        });
        matches!(keyword_text.as_str(), "trait" | "mod").then_some(name)
    }

    /// `tokens` begin with `fn`; a function without a body has no length.
    fn function(&mut self, tokens: &[TokenTree], name: &str) {
        let body = tokens
            .iter()
            .take_while(|token| !is_punct(Some(token), ';'))
            .find_map(|token| match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
                _ => None,
            });
        if let (Some(first), Some(body)) = (tokens.first(), body) {
            let line = line_of(first.span());
            self.functions.push(Function {
                name: name.to_owned(),
                line,
                length_lines: body.span_close().end().line - line + 1,
            });
        }
    }

    /// Reads the path that begins at `at`, with all that the braces of an import hold. Returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, scope: &Scope) -> usize {
        let line = tokens.get(at).map_or(0, |token| line_of(token.span()));
        let mut segments = scope.prefix.clone();
        while let Some(TokenTree::Ident(word)) = tokens.get(at) {
            segments.push(plain(word));
            at += 1;
            if !(is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')) {
                break;
            }
            at += 2;
            if is_punct(tokens.get(at), '*') {
                segments.push("*".to_owned());
                at += 1;
                break;
            }
            if let Some(group) = group_in(tokens, at, Delimiter::Brace) {
                let prefix = segments;
                self.walk(
                    &trees(group.stream()),
                    Scope {
                        prefix,
                        ..scope.clone()
                    },
                );
                return at + 1;
            }
        }
        let called = is_punct(tokens.get(at), '!')
            && matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
        self.mentions.push(Mention {
            segments,
            form: if called { Form::MacroCall } else { Form::Path },
            line,
            place: scope.place,
        });
        at
    }

    fn string(&mut self, literal: &Literal) {
        let written = literal.to_string();
        let Some((before, rest)) = written.split_once('"') else {
            return;
        };
        if let Some((content, _)) = rest.rsplit_once('"')
            && before.chars().all(|c| "bcr#".contains(c))
        {
            self.strings.push(Text {
                content: content.to_owned(),
                line: line_of(literal.span()),
            });
        }
    }
}

fn trees(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

fn line_of(span: Span) -> usize {
    span.start().line
}

fn plain(word: &Ident) -> String {
    word.to_string().trim_start_matches("r#").to_owned()
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn group_in(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn compact(stream: &TokenStream) -> String {
    stream.to_string().split_whitespace().collect()
}

fn is_allow(attribute: &str) -> bool {
    attribute.starts_with("allow(")
        || (attribute.starts_with("cfg_attr(") && attribute.contains(",allow("))
}

fn is_test_only(attribute: &str) -> bool {
    let all_of = attribute
        .strip_prefix("cfg(all(")
        .and_then(|rest| rest.strip_suffix("))"));
    attribute == "cfg(test)" || all_of.is_some_and(|list| list.split(',').any(|it| it == "test"))
}

/// Where the item that begins at `start` ends: after its braces or its semicolon; a field or an arm after its comma.
fn item_end(tokens: &[TokenTree], start: usize) -> usize {
    const DECLARING: [&str; 11] = [
        "const", "enum", "fn", "impl", "mod", "static", "struct", "trait", "type", "union", "use",
    ];
    let mut declares = false;
    for (offset, token) in tokens[start..].iter().enumerate() {
        let ends = match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => true,
                ',' => !declares,
                _ => false,
            },
            TokenTree::Ident(word) => {
                declares |= DECLARING.iter().any(|keyword| word == keyword);
                false
            }
            TokenTree::Literal(_) => false,
        };
        if ends {
            return start + offset + 1;
        }
    }
    tokens.len()
}

/// The name of the type in `impl<…> Trait<…> for Type<…> where …`, given what follows `impl`: the last outside angle
/// brackets.
fn implemented_type(tokens: &[TokenTree]) -> String {
    let mut depth = 0_usize;
    let mut name = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            TokenTree::Ident(word) if depth == 0 && word == "where" => break,
            TokenTree::Ident(word) if depth == 0 => name = plain(word),
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{Form, Outline, Place};

    fn outline(text: &str) -> Outline {
        Outline::parse(text).unwrap()
    }

    fn product_paths(text: &str) -> Vec<String> {
        let outline = outline(text);
        let product = outline
            .mentions
            .iter()
            .filter(|it| it.place == Place::Product);
        product.map(|it| it.segments.join("::")).collect()
    }

    #[test]
    fn imports_are_flattened_and_renames_are_left_out() {
        let paths = product_paths("use std::{fs, io::{self, Read as R}, time::*};");
        let expected = [
            "use",
            "std::fs",
            "std::io::self",
            "std::io::Read",
            "std::time::*",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_rename_hides_neither_the_path_before_nor_the_one_after() {
        let paths = product_paths("use std::{io as x, fs};");
        assert_eq!(paths, ["use", "std::io", "std::fs"]);
    }

    #[test]
    fn a_hash_that_opens_no_attribute_is_passed_over() {
        let paths = product_paths("macro_rules! m { ($(#$a:tt)*) => { #$x f::g() } }");
        assert!(paths.contains(&"f::g".to_owned()));
    }

    #[test]
    fn code_inside_a_macro_counts() {
        let outline = outline("fn f() { log!(a, std::fs::read(x)); }");
        let found = |name: &str| {
            outline
                .mentions
                .iter()
                .find(|it| it.segments.join("::") == name)
        };
        assert_eq!(found("log").unwrap().form, Form::MacroCall);
        assert!(found("std::fs::read").is_some());
    }

    #[test]
    fn comments_and_documentation_do_not_count() {
        assert!(product_paths("//! std::fs\n/// std::fs\n// std::fs\n").is_empty());
        assert!(outline("/// SELECT 1\nfn f() {}").strings.is_empty());
    }

    #[test]
    fn test_code_is_told_from_the_product() {
        let paths = product_paths(
            "#[cfg(test)] use a::b;\n#[cfg(test)] mod t { fn f() { c(); } }\n\
             struct S { #[cfg(all(test, unix))] x: d::E, y: f::G }",
        );
        for absent in ["a::b", "c", "d::E"] {
            assert!(!paths.iter().any(|path| path == absent), "{absent}");
        }
        assert!(paths.iter().any(|path| path == "f::G"));
    }

    #[test]
    fn test_code_ends_with_its_item() {
        let paths = product_paths(
            "#[cfg(test)] use a::b;\nuse c::d;\n\
             #[cfg(test)] fn f<A, B>(x: e::F) { g::h() }\nuse i::j;",
        );
        assert_eq!(
            paths,
            ["cfg", "test", "use", "c::d", "cfg", "test", "use", "i::j"]
        );
    }

    #[test]
    fn a_file_can_be_all_tests() {
        assert!(!product_paths("#![cfg(test)]\nuse a::b;").contains(&"a::b".to_owned()));
    }

    #[test]
    fn code_that_is_not_only_for_tests_is_product_code() {
        let paths = product_paths("#[cfg(any(test, feature = \"x\"))] use a::b;");
        assert!(paths.contains(&"a::b".to_owned()));
        let paths = product_paths("#[cfg(all(unix, windows))] use a::b;");
        assert!(paths.contains(&"a::b".to_owned()));
    }

    #[test]
    fn functions_are_measured_from_fn_to_the_closing_brace_and_know_their_type() {
        let outline = outline(
            "impl<T: Fn() -> u8> fmt::Display for &mut Row<'_, T> where T: X {\n\n/// Doc.\n\
             #[inline]\npub fn fmt(\n  &self,\n) -> [u8; 2] {\n  x\n}\n}\n\
             trait T { fn no_body(&self); }\nmod tests { proptest! { fn inside(x in 0..1) {} } }",
        );
        let measured: Vec<(&str, usize, usize)> = outline
            .functions
            .iter()
            .map(|it| (it.name.as_str(), it.line, it.length_lines))
            .collect();
        assert_eq!(measured, [("Row::fmt", 5, 5), ("tests::inside", 12, 1)]);
    }

    #[test]
    fn each_function_belongs_to_the_type_around_it() {
        let outline = outline("impl A { fn x() {} } impl D for B { fn x() {} } fn x() {}");
        let names: Vec<&str> = outline
            .functions
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(names, ["A::x", "B::x", "x"]);
    }

    #[test]
    fn strings_of_every_kind_are_read_without_their_quotes() {
        let outline = outline(r##"const X: T = ("a\"b", r#"c"d"#, b"e", 'f', '"', 7);"##);
        let strings: Vec<&str> = outline
            .strings
            .iter()
            .map(|it| it.content.as_str())
            .collect();
        assert_eq!(strings, [r#"a\"b"#, r#"c"d"#, "e"]);
    }
}
