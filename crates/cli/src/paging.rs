//! Prints lists that the API returns in pages.

use std::io::Write as _;

use onward_api::problem::Problem;
use serde::Serialize;

use crate::console;

/// Maximum number of entries per request.
pub(crate) const PAGE_SIZE: u32 = 1_000;

/// Output options of list commands.
#[derive(clap::Args)]
pub(crate) struct ListOutputArgs {
    /// Maximum number of entries to print
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A page of a list, and the cursor of the next page; `None` on the last page.
pub(crate) struct ListPage<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl ListOutputArgs {
    /// Prints a heading and one line per entry, up to the limit. `page` is called with the number
    /// of entries to fetch and the cursor to continue from.
    pub(crate) async fn print_pages<T: Serialize>(
        &self,
        heading: &str,
        line: impl Fn(&T) -> String,
        mut page: impl AsyncFnMut(u32, Option<String>) -> Result<ListPage<T>, Problem>,
    ) -> anyhow::Result<()> {
        let mut out = console::output(self.json);
        let (mut left, mut next, mut is_first, mut is_truncated) = (self.limit, None, true, false);
        while left > 0 {
            let requested = u32::try_from(left).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
            let fetched = page(requested, next.take()).await?;
            if is_first && !self.json {
                writeln!(out, "{heading}")?;
            }
            is_first = false;
            // Some callers fetch larger pages than requested.
            is_truncated = fetched.items.len() > left;
            for item in fetched.items.iter().take(left) {
                let text = if self.json {
                    serde_json::to_string(item)?
                } else {
                    line(item)
                };
                writeln!(out, "{text}")?;
            }
            left -= fetched.items.len().min(left);
            next = fetched.next;
            if next.is_none() {
                break;
            }
        }
        if (is_truncated || next.is_some()) && !self.json {
            console::print_message(format_args!(
                "the list may have more than {} entries: use --limit N to show more",
                self.limit
            ));
        }
        Ok(())
    }
}
