//! Text that is meant to do harm, wherever text can be put. It is only text.

use futures_util::future::BoxFuture;
use onward_runs::RunId;

use super::prelude::*;
use crate::conformance::sample::{alert, job, started};
use crate::tables::{Alert, Execution, Job};
use crate::{Change, Purge, Row, Type, tables};

const TEXTS: [(&str, &str); 18] = [
    ("a_statement", "'; DROP TABLE run_events; --"),
    ("a_second_statement", "x'); DELETE FROM job_queue WHERE ('a'='a"),
    ("a_condition", "' OR '1'='1"),
    ("quotes", "'\"`´‘’“”''\"\""),
    ("backslashes", "\\ \\\\ \\' \\n \\0 \\x00 \\u0000"),
    ("wildcards", "%_*?[a-z]"),
    ("parameters", "$1 ?1 :name @name {} {0} %s"),
    ("comments", "-- /* */ # //"),
    ("dollar_quotes", "$$ $tag$ $body$"),
    ("the_word_null", "NULL"),
    ("numbers", "007"),
    ("json", "{\"a\":[1,\"2\"]}"),
    ("emoji", "👩‍👩‍👧 🏳️‍🌈 😀"),
    ("right_to_left", "\u{202e}txt.exe\u{202c} שלום"),
    ("combining_letters", "e\u{301} Z\u{351}\u{36b} ﷽"),
    ("letters_outside_of_the_first_plane", "𝒳 \u{10ffff} \u{ffff} \u{fffe}"),
    ("blanks", " \u{a0}\u{200b}\u{feff}\u{3000} "),
    ("a_path", "../../../etc/passwd"),
];

/// Texts that some database or other takes for the same, or for numbers.
const ALIKE: [&str; 20] = [
    "a", "A", "a ", " a", "á", "a\u{301}", "ａ", "ß", "ss", "7", "07", "7.0", "7e0", "+7", "true", "TRUE", "1", "null",
    "", " ",
];

super::checks!(fn written, Hostile:
    text_that_looks_alike_is_different_in_keys,
    text_that_looks_alike_is_different_in_unique_columns,
    run_ids_that_look_alike_are_different_runs,
    u_0000_is_refused_in_every_text_of_every_table,
    u_0000_is_refused_in_the_key_of_a_delete,
    a_key_with_u_0000_is_nowhere,
    controls_other_than_u_0000_are_kept,
);

pub(super) fn checks() -> Vec<Check> {
    let mut checks = written();
    for (name, text) in TEXTS {
        checks.extend(PLACES.map(|(place, question)| {
            let name = format!("{name}_{place}_is_only_text");
            Check::new(Topic::Hostile, name, move |world| question(world, text))
        }));
    }
    checks
}

/// What is asked about a text.
type Question = for<'a> fn(&'a World<'a>, &'static str) -> BoxFuture<'a, Verdict>;

const PLACES: [(&str, Question); 3] = [
    ("in_rows", |world, text| Box::pin(only_text_in_rows(world, text))),
    ("in_names_of_runs", |world, text| Box::pin(only_text_in_names(world, text))),
    ("in_payloads", |world, text| Box::pin(only_text_in_payloads(world, text))),
];

async fn only_text_in_rows(world: &World<'_>, text: &str) -> Verdict {
    let bystander = job("bystander");
    let hostile = Job { run_id: text.into(), tenant_id: text.into(), ..job(text) };
    world.commit(Commit::new().insert(&bystander).insert(&hostile).insert(&started(1, Some(text)))).await?;
    world.commit(Commit::new().insert(&Alert { message: text.into(), ..alert(text) })).await?;
    same("by its key", world.get(sample::key_of(&hostile)).await?, Some((hostile.clone(), 1)))?;
    let after: Vec<(Job, u64)> = world.list(Scan::all::<Job>().equal(&hostile.id)).await?;
    same("by a scan", after, vec![(hostile.clone(), 1)])?;
    let subjects: Vec<(Alert, u64)> =
        world.list(Scan::by::<Alert>(Alert::BY_SUBJECT).equal(&alert("").subject)).await?;
    same("the message", subjects.iter().map(|(alert, _)| &*alert.message).collect(), vec![text])?;
    let kept = world.commit(Commit::new().insert_or_keep(&started(2, Some(text)))).await?;
    let stored = Stored { row: started(1, Some(text)).to_row(), version: 1 };
    same("by its unique columns", kept.changes, vec![Outcome::Kept(stored)])?;
    world.commit(Commit::new().update(&hostile, 1)).await?;
    world.commit(Commit::new().delete(&hostile, 2)).await?;
    let left: Vec<(Job, u64)> = world.list(Scan::all::<Job>()).await?;
    same("what is left", left, vec![(bystander, 1)])
}

async fn only_text_in_names(world: &World<'_>, text: &str) -> Verdict {
    let named = RunEventWrite {
        tenant_id: id(text),
        project_id: id(text),
        environment_id: id(text),
        plan_id: id(text),
        plan_version: id(text),
        step_id: Some(id(text)),
        ..event(text, 1)
    };
    let named = sample::keyed(named);
    world.append_event(event("bystander", 1)).await?;
    world.append_event(named.clone()).await?;
    let found: Vec<_> = world.log(text).await?.into_iter().map(|record| record.event).collect();
    same("the log", found, vec![named.clone()])?;
    same("a repeat", world.append_event(named).await?.result.run_seq, seq(1))?;
    same("whose run it is", world.head(text).await?.tenant_id, id(text))?;
    same("whether it could be purged", world.purge(Purge::Run(id(text))).await?, true)?;
    let left: Vec<RunId> = world.runs(None, None, 9).await?.into_iter().map(|head| head.run_id).collect();
    same("the runs that are left", left, vec![id("bystander")])
}

async fn only_text_in_payloads(world: &World<'_>, text: &str) -> Verdict {
    let quoted = serde_json::Value::from(text).to_string();
    let hostile = sample::carrying(event("r", 1), &format!("{{{quoted}:{quoted}}}"));
    world.append_event(hostile.clone()).await?;
    holds("a repeat does not differ", !world.append_event(hostile.clone()).await?.differs)?;
    let found: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("the log", found, vec![hostile])
}

async fn text_that_looks_alike_is_different_in_keys(world: &World<'_>) -> Verdict {
    for name in ALIKE {
        world.commit(Commit::new().insert(&job(name))).await?;
    }
    for name in ALIKE {
        same("the row", world.get(sample::key_of(&job(name))).await?, Some((job(name), 1)))?;
    }
    same("how many there are", world.rows(Scan::all::<Job>()).await?.len(), ALIKE.len())
}

async fn text_that_looks_alike_is_different_in_unique_columns(world: &World<'_>) -> Verdict {
    for (number, key) in (1..).zip(ALIKE) {
        let receipt = world.commit(Commit::new().insert_or_keep(&started(number, Some(key)))).await?;
        same(&format!("the outcome for {key:?}"), receipt.changes, vec![Outcome::Made])?;
    }
    same("how many there are", world.rows(Scan::all::<Execution>()).await?.len(), ALIKE.len())
}

async fn run_ids_that_look_alike_are_different_runs(world: &World<'_>) -> Verdict {
    let names: Vec<&str> = ALIKE.into_iter().filter(|name| name.parse::<RunId>().is_ok()).collect();
    for name in &names {
        same("the place", world.append_event(event(name, 1)).await?.result.run_seq, seq(1))?;
    }
    same("how many runs there are", world.runs(None, None, 99).await?.len(), names.len())
}

async fn u_0000_is_refused_in_every_text_of_every_table(world: &World<'_>) -> Verdict {
    for table in tables::ALL {
        let texts = table.columns.iter().enumerate().filter(|(_, column)| column.of == Type::Text);
        for (place, column) in texts {
            let Row(mut values) = sample::row(table, 1);
            values[place] = Value::Text("a\0b".into());
            let mut commit = Commit::new();
            commit.changes.push(Change::Insert { table, row: Row(values) });
            let (table, column) = (table.name, column.name);
            let error = Invalid::Value { table, column, reason: "text cannot hold U+0000" };
            refused(world.commit(commit).await, error)?;
        }
    }
    same("the rows of all tables", world.dump().await?.rows.values().map(Vec::len).sum(), 0_usize)
}

async fn u_0000_is_refused_in_the_key_of_a_delete(world: &World<'_>) -> Verdict {
    let (table, column) = (Job::TABLE.name, "id");
    let error = Invalid::Value { table, column, reason: "text cannot hold U+0000" };
    refused(world.commit(Commit::new().delete(&job("\0"), 1)).await, error)
}

async fn a_key_with_u_0000_is_nowhere(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("a"))).await?;
    for name in ["\0", "a\0", "a\0b"] {
        match world.row(Job::TABLE, sample::key_of(&job(name))).await {
            Err(error) if error.kind() == Kind::Invalid => {}
            answer => same("the row", answer?, None)?,
        }
    }
    Ok(())
}

async fn controls_other_than_u_0000_are_kept(world: &World<'_>) -> Verdict {
    let controls: String = (1..0x20).chain(0x7f..0xa0).filter_map(char::from_u32).collect();
    let hostile = Job { run_id: controls.as_str().into(), ..job(&controls) };
    world.commit(Commit::new().insert(&hostile)).await?;
    same("the row", world.get(sample::key_of(&hostile)).await?, Some((hostile, 1)))
}
