//! Names of types and functions: unique, descriptive, and measured.
//!
//! Declarations are read from the tokens of a file, so that what a macro contains counts and what a
//! comment mentions does not. Code under `#[cfg(test)]` and test targets are left out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr as _;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tidy::repository::{Repository, RuleFinding};

/// Names that every crate may have, because the crate's name qualifies them.
const REPEATABLE: [&str; 4] = ["Args", "Config", "Error", "Options"];
/// Concepts of the guest interface, which the SDK declares a second time: it is compiled into a
/// component and depends on no crate of the engine.
const SHARED_WITH_SDK: [&str; 6] = [
    "CallContext",
    "FunctionKind",
    "HttpRequest",
    "HttpResponse",
    "RetryPolicy",
    "Timestamp",
];
/// Words that say only that code needed a place.
const EMPTY_WORDS: [&str; 7] = [
    "Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Misc",
];

struct Declaration<'a> {
    path: &'a str,
    line: usize,
    name: String,
}

#[derive(Default)]
struct Declarations<'a> {
    types: Vec<Declaration<'a>>,
    functions: Vec<Declaration<'a>>,
    modules: Vec<Declaration<'a>>,
}

/// How the names of a repository compare with those of others.
pub(crate) struct NameFigures {
    functions: usize,
    one_word_functions: usize,
    types: usize,
    one_word_types: usize,
    repeated_types: usize,
}

impl fmt::Display for NameFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: usize, whole: usize| 100 * part / whole.max(1);
        writeln!(f, "functions                       {:>5}", self.functions)?;
        let share = percent(self.one_word_functions, self.functions);
        writeln!(
            f,
            "  with a one-word name          {:>5}  {share} %",
            self.one_word_functions
        )?;
        writeln!(f, "types                           {:>5}", self.types)?;
        let share = percent(self.one_word_types, self.types);
        writeln!(
            f,
            "  with a one-word name          {:>5}  {share} %",
            self.one_word_types
        )?;
        let share = percent(self.repeated_types, self.types);
        writeln!(
            f,
            "  whose name is defined twice   {:>5}  {share} %",
            self.repeated_types
        )
    }
}

pub(crate) fn measure(repository: &Repository) -> NameFigures {
    let declared = declarations(repository);
    let mut counts = BTreeMap::new();
    for it in &declared.types {
        *counts.entry(it.name.as_str()).or_insert(0_usize) += 1;
    }
    NameFigures {
        functions: declared.functions.len(),
        one_word_functions: declared
            .functions
            .iter()
            .filter(|it| !it.name.contains('_'))
            .count(),
        types: declared.types.len(),
        one_word_types: declared
            .types
            .iter()
            .filter(|it| words(&it.name).len() == 1)
            .count(),
        repeated_types: counts.values().filter(|count| **count > 1).sum(),
    }
}

pub(crate) fn type_names_are_unique(repository: &Repository) -> Vec<RuleFinding> {
    let mut first: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    let mut findings = Vec::new();
    for it in declarations(repository).types {
        if REPEATABLE.contains(&it.name.as_str()) {
            continue;
        }
        if let Some((path, line)) = first.get(&it.name) {
            let is_in_one_of_them = it.path.starts_with("sdk/") != path.starts_with("sdk/");
            if is_in_one_of_them && SHARED_WITH_SDK.contains(&it.name.as_str()) {
                continue;
            }
            let advice = format!(
                "{} is defined at {path}:{line} too: rename one of them",
                it.name
            );
            findings.push(RuleFinding::new(it.path, it.line, advice));
        } else {
            first.insert(it.name, (it.path, it.line));
        }
    }
    findings
}

/// Checks the names of types, modules, files and folders.
pub(crate) fn names_say_something(repository: &Repository) -> Vec<RuleFinding> {
    let is_empty = |name: &str| {
        let words = words(name);
        words.iter().any(|word| EMPTY_WORDS.contains(word)) || words.last() == Some(&"Impl")
    };
    let declared = declarations(repository);
    let types = declared.types.iter().filter(|it| is_empty(&it.name));
    let modules = declared.modules.iter();
    let modules = modules.filter(|it| is_empty_module(&it.name));
    let finding = |path: &str, line, name: &str| {
        let advice = format!("{name} does not say what it does: name it after that");
        RuleFinding::new(path, line, advice)
    };
    let declarations = types.chain(modules);
    let mut findings: Vec<RuleFinding> = declarations
        .map(|it| finding(it.path, it.line, &it.name))
        .collect();
    for (path, _) in repository.texts(".rs") {
        let mut parts = path.trim_end_matches(".rs").split('/');
        findings.extend(
            parts
                .find(|part| is_empty_module(part))
                .map(|part| finding(path, 1, part)),
        );
    }
    findings
}

fn is_empty_module(name: &str) -> bool {
    let is_empty = |word: &str| {
        let mut empty = EMPTY_WORDS.iter();
        word == "impl" || empty.any(|it| it.eq_ignore_ascii_case(word))
    };
    name.split(['_', '-']).any(is_empty)
}

/// Production code, the Rust SDK included. Tests, benchmarks, examples and fuzz targets are left
/// out.
fn is_production(path: &str) -> bool {
    const OTHER: [&str; 4] = ["tests", "benches", "examples", "fuzz"];
    let is_test_file = path.ends_with("tests.rs") || path.ends_with("/test.rs");
    !is_test_file && !path.split('/').any(|part| OTHER.contains(&part))
}

fn declarations(repository: &Repository) -> Declarations<'_> {
    let mut declared = Declarations::default();
    for (path, text) in repository
        .texts(".rs")
        .filter(|(path, _)| is_production(path))
    {
        if let Ok(tokens) = TokenStream::from_str(text) {
            collect(path, tokens, &mut declared);
        }
    }
    declared
}

fn collect<'a>(path: &'a str, tokens: TokenStream, declared: &mut Declarations<'a>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut skip_block = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let written: String = group.to_string().split_whitespace().collect();
                skip_block |= written == "[cfg(test)]" || written.starts_with("[cfg(all(test");
                collect(path, group.stream(), declared);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && skip_block => {
                skip_block = false;
            }
            TokenTree::Group(group) => collect(path, group.stream(), declared),
            TokenTree::Punct(punct) if punct.as_char() == ';' => skip_block = false,
            TokenTree::Ident(keyword) if !skip_block => {
                let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
                    continue;
                };
                let declaration = Declaration {
                    path,
                    line: keyword.span().start().line,
                    name: name.to_string(),
                };
                match keyword.to_string().as_str() {
                    "struct" | "enum" | "trait" | "union" => declared.types.push(declaration),
                    "fn" => declared.functions.push(declaration),
                    "mod" => declared.modules.push(declaration),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// The words of a CamelCase name; a run of capitals is one word.
fn words(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let is_start = |at: usize| {
        let follows_small = !bytes[at - 1].is_ascii_uppercase();
        let precedes_small = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        bytes[at].is_ascii_uppercase() && (follows_small || precedes_small)
    };
    let starts: Vec<usize> = (1..bytes.len()).filter(|at| is_start(*at)).collect();
    let bounds = [0]
        .into_iter()
        .chain(starts.iter().copied())
        .zip(starts.iter().copied().chain([bytes.len()]));
    bounds.filter_map(|(from, to)| name.get(from..to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(text: &str) -> Repository {
        Repository::from_texts(&[("crates/a/src/lib.rs", text)])
    }

    #[test]
    fn names_are_counted_by_words_and_repetitions() {
        let text = "struct Item; mod m { struct Item; enum JobStatus {} } trait T {}\n\
                    fn run() {} fn run_job() { fn inner() {} } macro! { struct JobRow; }\n\
                    #[cfg(test)] mod tests { struct Item; fn helper() {} }\n\
                    #[cfg(test)] use a::b; fn last_one() {}";
        let figures = measure(&repository(text));
        assert_eq!(
            (
                figures.types,
                figures.one_word_types,
                figures.repeated_types
            ),
            (5, 3, 2)
        );
        assert_eq!((figures.functions, figures.one_word_functions), (4, 2));
    }

    #[test]
    fn a_type_name_is_defined_once_except_those_that_a_crate_qualifies() {
        let found = type_names_are_unique(&repository(
            "struct Job;\nenum Job {}\nstruct Error; enum Error {}",
        ));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].advice.contains("crates/a/src/lib.rs:1"),
            "{}",
            found[0].advice
        );
    }

    #[test]
    fn the_sdk_shares_the_names_of_the_guest_interface_and_no_others() {
        let text = "struct RetryPolicy; struct Job;";
        let found = type_names_are_unique(&Repository::from_texts(&[
            ("crates/a/src/lib.rs", text),
            ("sdk/rust/src/lib.rs", text),
        ]));
        assert_eq!(found.len(), 1);
        assert!(found[0].advice.contains("Job"), "{}", found[0].advice);
        let twice = "struct RetryPolicy; mod m { struct RetryPolicy; }";
        assert_eq!(type_names_are_unique(&repository(twice)).len(), 1);
    }

    #[test]
    fn an_empty_word_is_found() {
        let text = "struct JobManager; struct Commonplace; struct StoreImpl; struct Implied;";
        assert_eq!(names_say_something(&repository(text)).len(), 2);
        let modules = "mod job_utils { mod misc {} } mod common; mod commons; mod utility;";
        assert_eq!(names_say_something(&repository(modules)).len(), 3);
        let paths = [("crates/a/tests/common/x.rs", ""), ("sdk/a/util.rs", "")];
        assert_eq!(
            names_say_something(&Repository::from_texts(&paths)).len(),
            2
        );
    }

    #[test]
    fn capitals_are_one_word() {
        assert_eq!(words("HTTPServer"), ["HTTP", "Server"]);
        assert_eq!(words("OtlpSpan2"), ["Otlp", "Span2"]);
    }
}
