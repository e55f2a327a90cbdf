//! Rows of an audience that repeat the id of an earlier row with another address. The recipient
//! gets one message, at the address of the first row; the other addresses get none.

use std::collections::BTreeMap;

use onward_campaign_core::AudienceRecipient;

use crate::deploy_check::DeployPrerequisite;

/// Maximum number of conflicts that a finding lists.
const LISTED_MAX: usize = 10;

/// Finds the rows with a repeated id and another address, among the ids that a first pass over the
/// audience found to be repeated.
#[derive(Debug)]
pub struct ConflictingRows {
    /// The first row of each repeated id: its line and its address.
    first_rows: BTreeMap<String, Option<(u64, String)>>,
    count: u64,
    listed: Vec<String>,
}

impl ConflictingRows {
    /// Looks for conflicts among rows with these ids.
    pub fn among(ids: impl IntoIterator<Item = String>) -> Self {
        Self {
            first_rows: ids.into_iter().map(|id| (id, None)).collect(),
            count: 0,
            listed: Vec::new(),
        }
    }

    /// Whether there are no ids to look for.
    pub fn is_empty(&self) -> bool {
        self.first_rows.is_empty()
    }

    /// Compares the row in this line with the first row of its id.
    pub fn add_row(&mut self, line: u64, recipient: &AudienceRecipient) {
        let Some(first) = self.first_rows.get_mut(&recipient.id) else {
            return;
        };
        let (first_line, address) =
            first.get_or_insert_with(|| (line, recipient.address.to_lowercase()));
        if *address == recipient.address.to_lowercase() {
            return;
        }
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(format!(
                "`{}` in line {line}, first in line {first_line}",
                recipient.id
            ));
        }
    }

    /// The finding, if there are conflicts. It does not fail the check: the id decides who is one
    /// recipient.
    pub fn finding(&self) -> Option<DeployPrerequisite> {
        if self.count == 0 {
            return None;
        }
        let more = match self.count - self.listed.len() as u64 {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let message = format!(
            "rows with the id of an earlier row and another address, which gets no message: {} \
             ({}{more})",
            self.count,
            self.listed.join("; ")
        );
        Some(DeployPrerequisite::met("audience.conflicts", message))
    }
}
