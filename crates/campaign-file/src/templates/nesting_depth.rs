//! Templates that are too deep. Expressions are parsed, and values are dropped, by functions that call themselves, and a stack
//! that is used up ends the process: what could come to that is not even parsed.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Words of one tag, at most: each can be an operator, which is within the next.
const TAG_TOKENS_MAX: usize = 300;
/// How often a template can say these. A branch is within the one before, and a list can be put into a list.
const KEYWORD_LIMITS: [(&str, usize); 2] = [("elif", 100), ("set", 100)];

/// The line where a template is too deep, and why.
pub(crate) fn find_excess_depth(template: &str) -> Option<(usize, String)> {
    let mut words = 0;
    let mut said = [0; KEYWORD_LIMITS.len()];
    // What is no word at all is for the parser to say: it gets no further than that either.
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
