//! Rejects templates that are nested too deeply, before they are parsed. The template engine parses
//! expressions and drops values recursively, and a stack overflow would abort the process.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Maximum number of tokens per tag: each can be an operator, which nests one level deeper.
const TAG_TOKENS_MAX: usize = 300;
/// Maximum number of occurrences of a keyword per template. Each `elif` nests in the branch before
/// it, and repeated `set` can nest lists in lists.
const KEYWORD_LIMITS: [(&str, usize); 2] = [("elif", 100), ("set", 100)];

/// Returns the line at which a template exceeds the limits, and the reason; `None` if it does not.
pub(crate) fn find_excess_depth(template: &str) -> Option<(usize, String)> {
    let mut words = 0;
    let mut said = [0; KEYWORD_LIMITS.len()];
    // An invalid token ends the loop: the parser reports it, and does not get past it either.
    for (token, span) in tokenize(template, false, SyntaxConfig::default()).map_while(Result::ok) {
        if matches!(
            token,
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart
        ) {
            words = 0;
        }
        words += 1;
        let line = usize::from(span.start_line);
        if words > TAG_TOKENS_MAX {
            return Some((
                line,
                format!("one tag has more than {TAG_TOKENS_MAX} words"),
            ));
        }
        for ((name, most), count) in KEYWORD_LIMITS.iter().zip(&mut said) {
            *count += usize::from(matches!(token, Token::Ident(word) if word == *name));
            if *count > *most {
                return Some((line, format!("says `{name}` more than {most} times")));
            }
        }
    }
    None
}
