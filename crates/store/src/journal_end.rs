//! Finds the last chunk of a journal with few reads, for stores that cannot look it up.

use onward_journal::ExecutionId;

use crate::{Error, JournalChunk, Store};

/// Returns the last chunk: doubles the distance until it is past the end, then bisects.
pub(crate) async fn find_journal_end(
    store: &(impl Store + ?Sized),
    execution: ExecutionId,
) -> Result<Option<JournalChunk>, Error> {
    let Some(mut last) = read_chunk(store, execution, 0).await? else {
        return Ok(None);
    };
    let mut distance = 1;
    let mut past = loop {
        let probe = next_sequence(&last).saturating_add(distance - 1);
        match read_chunk(store, execution, probe).await? {
            Some(chunk) => last = chunk,
            None => break probe,
        }
        distance *= 2;
    };
    while next_sequence(&last) < past {
        let probe = next_sequence(&last).midpoint(past);
        match read_chunk(store, execution, probe).await? {
            Some(chunk) => last = chunk,
            None => past = probe,
        }
    }
    Ok(Some(last))
}

async fn read_chunk(
    store: &(impl Store + ?Sized),
    execution: ExecutionId,
    from: u64,
) -> Result<Option<JournalChunk>, Error> {
    let page = store.read_journal(execution, from, 1).await?;
    Ok(page.into_iter().next())
}

fn next_sequence(chunk: &JournalChunk) -> u64 {
    chunk.first + u64::from(chunk.count)
}
