//! Rejects templates that are nested too deeply, before they are parsed. The template engine parses
//! expressions and drops values recursively, and a stack overflow would abort the process.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::template_error::{TemplateError, TemplateErrorKind};

/// Maximum number of tokens per tag: each can be an operator, which nests one level deeper.
const TAG_TOKENS_MAX: usize = 300;
/// Maximum number of occurrences of a keyword per template. Each `elif` nests in the branch before
/// it, and repeated `set` can nest lists in lists.
const KEYWORD_LIMITS: [(&str, usize); 2] = [("elif", 100), ("set", 100)];

/// Fails at the first line at which a template exceeds the limits.
pub(crate) fn check_nesting_depth(template: &str) -> Result<(), TemplateError> {
    let mut tag_tokens = 0;
    let mut keyword_counts = [0; KEYWORD_LIMITS.len()];
    // An invalid token ends the loop: the parser reports it, and does not get past it either.
    for (token, span) in tokenize(template, false, SyntaxConfig::default()).map_while(Result::ok) {
        if matches!(
            token,
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart
        ) {
            tag_tokens = 0;
        }
        tag_tokens += 1;
        let line = usize::from(span.start_line);
        if tag_tokens > TAG_TOKENS_MAX {
            let kind = TemplateErrorKind::LongTag {
                tokens_max: TAG_TOKENS_MAX,
            };
            return Err(TemplateError::at_line(line, kind));
        }
        for ((keyword, max), count) in KEYWORD_LIMITS.into_iter().zip(&mut keyword_counts) {
            *count += usize::from(matches!(token, Token::Ident(word) if word == keyword));
            if *count > max {
                let kind = TemplateErrorKind::RepeatedKeyword { keyword, max };
                return Err(TemplateError::at_line(line, kind));
            }
        }
    }
    Ok(())
}
