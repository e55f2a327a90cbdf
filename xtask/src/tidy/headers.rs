//! A5: every Rust file opens by saying why it exists, so a reader knows from the first lines whether to read on.

use crate::tidy::tree::{Finding, Tree};

const HEADER_CHARS_MIN: usize = 20;

pub(crate) fn every_file_says_why(tree: &Tree) -> Vec<Finding> {
    tree.texts()
        .filter(|(path, text)| path.ends_with(".rs") && header_chars(text) < HEADER_CHARS_MIN)
        .map(|(path, _)| {
            let what = format!(
                "open the file with a `//!` comment of at least {HEADER_CHARS_MIN} characters that says why it exists"
            );
            Finding::new(path, 1, what)
        })
        .collect()
}

fn header_chars(text: &str) -> usize {
    text.lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.trim().chars().count())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::every_file_says_why;
    use crate::tidy::tree::Tree;

    fn count(text: &str) -> usize {
        every_file_says_why(&Tree::of(&[("crates/cli/src/x.rs", text)])).len()
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(count("fn f() {}\n"), 1);
    }

    #[test]
    fn a_header_of_a_word_is_found() {
        assert_eq!(count("//! Things.\n"), 1);
        assert_eq!(count("//! nineteen characters\n"), 1);
        assert_eq!(count("//! twenty characters ok\n"), 0);
    }

    #[test]
    fn a_header_after_code_is_found() {
        assert_eq!(
            count("#![no_main]\n//! Why this file exists, at length.\n"),
            1
        );
    }

    #[test]
    fn a_header_that_says_why_is_clean() {
        assert_eq!(count("//! Why this file\n//!\n//! exists, at length.\n"), 0);
    }
}
