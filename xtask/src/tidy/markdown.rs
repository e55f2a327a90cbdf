//! Just enough Markdown to tell prose from code: a page may show a word or a link in code without meaning it.

/// The numbered lines of a page that are not inside a fenced block, with their inline code blanked.
pub(crate) fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fence: Option<String> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match (&fence, fence_mark(line)) {
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => lines.push((index + 1, without_inline_code(line))),
            (Some(open), Some(mark)) if mark.starts_with(open.as_str()) => fence = None,
            (Some(_), _) => {}
        }
    }
    lines
}

/// The run of backticks or tildes that opens or closes a fenced block.
fn fence_mark(line: &str) -> Option<String> {
    let line = line.trim_start();
    let first = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let mark: String = line.chars().take_while(|c| *c == first).collect();
    (mark.len() >= 3).then_some(mark)
}

/// The line with spaces in place of `code`; a run of backticks is closed by a run of the same length.
pub(crate) fn without_inline_code(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let (before, from_ticks) = rest.split_at(start);
        let ticks = from_ticks.len() - from_ticks.trim_start_matches('`').len();
        let (mark, inside) = from_ticks.split_at(ticks);
        text.push_str(before);
        let Some(length) = closing(inside, ticks) else {
            text.push_str(mark);
            rest = inside;
            continue;
        };
        text.push_str(&" ".repeat(length + 2 * ticks));
        rest = &inside[length + ticks..];
    }
    text.push_str(rest);
    text
}

/// Where the run of exactly `ticks` backticks begins.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].len() - text[start..].trim_start_matches('`').len();
        if run == ticks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{prose, without_inline_code};

    #[test]
    fn inline_code_is_blanked_and_an_unclosed_tick_is_kept() {
        assert_eq!(without_inline_code("a `b` c"), "a     c");
        assert_eq!(without_inline_code("``a`b`` c"), "        c");
        assert_eq!(without_inline_code("a ` b"), "a ` b");
    }

    #[test]
    fn fenced_blocks_are_left_out() {
        let lines = prose("one\n```sh\ntwo\n~~~\n```\nthree");
        assert_eq!(lines, [(1, "one".to_owned()), (6, "three".to_owned())]);
    }
}
