//! A8: SQL is written in the storage adapters only.
//!
//! Every string literal of a file is examined, wherever it stands and however it begins.

use std::str::FromStr as _;

use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};

use crate::tidy::repository::{Repository, RuleFinding};

/// What a statement starts with. The whole word counts, so that "selected" is no statement.
const SQL_STARTS: [&str; 8] = [
    "SELECT ",
    "INSERT INTO ",
    "DELETE FROM ",
    "UPDATE ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
];

pub(crate) fn sql_only_in_store_adapters(repository: &Repository) -> Vec<RuleFinding> {
    const ADVICE: &str = "move SQL to the store-* crate that runs it";
    // The tests of both adapters share statements that fill tables of earlier schemas.
    const INSIDE: [&str; 3] = ["crates/store-", "crates/testing/", "xtask/"];
    let is_outside = |path: &str| !INSIDE.iter().any(|folder| path.starts_with(folder));
    let mut findings = Vec::new();
    for (path, text) in repository.texts(".rs").filter(|(path, _)| is_outside(path)) {
        let mut lines = Vec::new();
        if let Ok(tokens) = TokenStream::from_str(text) {
            collect_sql(tokens, &mut lines);
        }
        findings.extend(
            lines
                .into_iter()
                .map(|line| RuleFinding::new(path, line, ADVICE)),
        );
    }
    let files = repository.texts(".sql");
    let outside = files.filter(|(path, _)| is_outside(path));
    findings.extend(outside.map(|(path, _)| RuleFinding::new(path, 1, ADVICE)));
    findings
}

/// Adds the lines of the string literals that are statements. Comments of items are left out.
fn collect_sql(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Literal(literal) if is_sql(&literal) => {
                lines.push(literal.span().start().line);
            }
            TokenTree::Group(group) => {
                let mut inside = group.stream().into_iter();
                let is_comment = group.delimiter() == Delimiter::Bracket
                    && matches!(inside.next(), Some(TokenTree::Ident(it)) if it == "doc");
                if !is_comment {
                    collect_sql(group.stream(), lines);
                }
            }
            _ => {}
        }
    }
}

fn is_sql(literal: &Literal) -> bool {
    let written = literal.to_string();
    let Some((_, text)) = written.split_once('"') else {
        return false;
    };
    let is_space = |c: char| c.is_whitespace() || c == '\\';
    // A line break of a literal that is not raw is written as `\n`.
    let text = text.trim_start_matches("\\n").trim_start_matches(is_space);
    let text = text.to_ascii_uppercase().replace('\n', " ");
    SQL_STARTS.iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::sql_only_in_store_adapters;
    use crate::tidy::repository::Repository;

    fn count(path: &str, text: &str) -> usize {
        sql_only_in_store_adapters(&Repository::from_texts(&[(path, text)])).len()
    }

    #[test]
    fn sql_outside_an_adapter_is_found() {
        for text in [
            "run(\"SELECT 1\")",
            "run(\" insert into runs\")",
            "r#\"Create Table runs\"#",
            "query(\"rows\", \"SELECT id FROM rows\")",
            "const ROWS: &str = r\"\n    SELECT id\n    FROM rows\";",
            "const ROWS: &str = \"\\n    UPDATE rows SET id = 1\";",
            "const ROWS: &str = \"\\\n    DELETE FROM rows\";",
        ] {
            assert_eq!(count("crates/engine/src/x.rs", text), 1, "{text}");
            assert_eq!(count("crates/store-sqlite/src/x.rs", text), 0, "{text}");
        }
        assert_eq!(count("crates/engine/0001.sql", ""), 1);
    }

    #[test]
    fn text_that_is_no_statement_is_allowed() {
        let text = "/// Update the row.\nfn f() { say(\"selected\", 'x', b\"updates\", 1); }";
        assert_eq!(count("crates/engine/src/x.rs", text), 0);
    }
}
