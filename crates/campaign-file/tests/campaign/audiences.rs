//! Audiences: who is found in a file, and what is said of the rest.

use std::io::{self, Read};

use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use onward_campaign_file::AudienceFormat;
use onward_campaign_file::audience::{
    AudienceFields, AudienceOpenError, AudienceReport, AudienceRowError, ROW_BYTES_MAX,
    read_audience,
};
use proptest::prelude::*;

fn by_email() -> AudienceFields {
    AudienceFields {
        id: None,
        address: "email".to_owned(),
        delimiter: None,
    }
}

/// What is in there: people, and lines with what is wrong with them.
fn found(format: AudienceFormat, bytes: &[u8]) -> (Vec<AudienceRecipient>, Vec<(u64, String)>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for row in read_audience(bytes, format, &by_email(), DeliveryChannel::Email).unwrap() {
        match row {
            Ok(recipient) => good.push(recipient),
            Err(AudienceRowError::BadRow(row)) => bad.push((row.line, row.reason)),
            Err(AudienceRowError::ReadFailed(error)) => panic!("{error}"),
        }
    }
    (good, bad)
}

fn ids(people: &[AudienceRecipient]) -> Vec<&str> {
    people.iter().map(|it| it.id.as_str()).collect()
}

#[test]
fn a_table_has_people_and_what_is_known_of_them() {
    let (good, bad) = found(
        AudienceFormat::Csv,
        b"id,email,name\n1,ada@example.com,\"Ada, \"\"Countess\"\"\"\n2, eve@example.com ,\n",
    );
    assert_eq!((ids(&good), bad), (vec!["1", "2"], vec![]));
    assert_eq!(good[0].data["name"], "Ada, \"Countess\"");
    assert_eq!(
        (good[1].address.as_str(), &good[1].data["name"]),
        ("eve@example.com", &"".into())
    );
    assert_eq!(good[0].data.len(), 1);
}

#[test]
fn tables_of_other_programs_are_read() {
    let windows =
        b"\xef\xbb\xbfemail,name,\r\nada@example.com,\"Ada\r\nL\",\r\n\r\neve@example.com,Eve,x";
    let (good, bad) = found(AudienceFormat::Csv, windows);
    assert_eq!(
        (ids(&good), bad),
        (vec!["ada@example.com", "eve@example.com"], vec![])
    );
    assert_eq!(good[0].data["name"], "Ada\r\nL");
    assert_eq!(good[1].data.len(), 1);
    let (good, _) = found(AudienceFormat::Csv, b"email\nAda@Example.com\n");
    assert_eq!(
        (&*good[0].id, &*good[0].address),
        ("ada@example.com", "Ada@example.com"),
        "one person, however written"
    );
    let fields = AudienceFields {
        delimiter: Some(b';'),
        ..by_email()
    };
    let rows = read_audience(
        &b"email;name\nada@example.com;\"Ada; L, x\"\n"[..],
        AudienceFormat::Csv,
        &fields,
        DeliveryChannel::Email,
    )
    .unwrap();
    assert_eq!(
        rows.map(Result::unwrap).next().unwrap().data["name"],
        "Ada; L, x"
    );
    let (good, _) = found(
        AudienceFormat::Tsv,
        b"name\temail\nAda, L\tada@example.com\n",
    );
    assert_eq!(good[0].data["name"], "Ada, L");
}

#[test]
fn a_bad_row_does_not_hide_the_next() {
    let (good, bad) = found(
        AudienceFormat::Csv,
        b"id,email,name\n1,ada,x\n2,a@example.com\n3,a@example.com,x,y\n4,a@example.com,\xff\n ,a@example.com,x\n6,b@example.com,x\n",
    );
    assert_eq!(ids(&good), ["6"]);
    let lines: Vec<u64> = bad.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6]);
    for ((_, reason), words) in bad.iter().zip([
        "no @",
        "2 fields",
        "4 fields",
        "`name` is not UTF-8",
        "no id",
    ]) {
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn an_id_is_short_and_has_no_control_characters() {
    let text = format!(
        "id,email\n{},a@example.com\n\"a\nb\",a@example.com\n",
        "x".repeat(256)
    );
    let (good, bad) = found(AudienceFormat::Csv, text.as_bytes());
    assert_eq!((good.len(), bad.len()), (0, 2));
}

#[test]
fn a_table_without_the_columns_that_are_needed_is_refused() {
    for (bytes, words) in [
        (&b""[..], "empty"),
        (b"id,name\n", "no column `email` among `id`, `name`"),
        (
            b"mail;name\n",
            "no column `email` among `mail;name`; perhaps `delimiter: \";\"`",
        ),
        (b"email;name\n", "perhaps `delimiter: \";\"`"),
        (b"email,name,name\n", "two columns `name`"),
        (b"email,\xff\n", "not UTF-8"),
    ] {
        let refused = read_audience(
            bytes,
            AudienceFormat::Csv,
            &by_email(),
            DeliveryChannel::Email,
        )
        .err()
        .unwrap();
        assert!(
            matches!(&refused, AudienceOpenError::InvalidHeader(why) if why.contains(words)),
            "{refused}"
        );
    }
    let fields = AudienceFields {
        id: Some("number".into()),
        address: "email".into(),
        delimiter: None,
    };
    assert!(
        read_audience(
            &b"id,email\n"[..],
            AudienceFormat::Csv,
            &fields,
            DeliveryChannel::Email
        )
        .is_err()
    );
}

#[test]
fn a_field_of_any_name_can_say_who_and_where() {
    let fields = AudienceFields {
        id: Some("customer".into()),
        address: "call".into(),
        delimiter: None,
    };
    let rows = read_audience(
        &b"call,customer,id\n+49 30 123456,7,x\n"[..],
        AudienceFormat::Csv,
        &fields,
        DeliveryChannel::Voice,
    )
    .unwrap();
    let people: Vec<AudienceRecipient> = rows.map(Result::unwrap).collect();
    assert_eq!(
        (people[0].id.as_str(), people[0].address.as_str()),
        ("7", "+4930123456")
    );
    assert_eq!(people[0].data["id"], "x");
    let same = AudienceFields {
        id: Some("email".into()),
        address: "email".into(),
        delimiter: None,
    };
    for (format, text) in [
        (AudienceFormat::Csv, "id,email\n1,a@example.com\n"),
        (AudienceFormat::Jsonl, r#"{"id":1,"email":"a@example.com"}"#),
    ] {
        let rows = read_audience(text.as_bytes(), format, &same, DeliveryChannel::Email).unwrap();
        assert_eq!(
            rows.map(Result::unwrap).map(|it| it.id).collect::<Vec<_>>(),
            ["a@example.com"]
        );
    }
}

#[test]
fn lines_of_json_have_people() {
    let text = b"\xef\xbb\xbf{\"id\":12,\"email\":\"ada@example.com\",\"cart\":[{\"n\":1}]}\r\n\r\n{\"email\":\"eve@example.com\"}";
    let (good, bad) = found(AudienceFormat::Jsonl, text);
    assert_eq!((ids(&good), bad), (vec!["12", "eve@example.com"], vec![]));
    assert_eq!(good[0].data["cart"][0]["n"], 1);
}

#[test]
fn lines_that_are_no_objects_are_bad_rows() {
    let mut text = b"[1]\n{\"email\":\"a@example.com\"\n{\"email\":{}}\n{}\n\xff\n".to_vec();
    text.extend(
        [
            b"[".repeat(100_000),
            b"{\"id\":true,\"email\":\"a@example.com\"}".to_vec(),
        ]
        .join(&b'\n'),
    );
    text.extend(b"\n{\"id\":\"8\",\"email\":\"a@example.com\"}\n");
    let (good, bad) = found(AudienceFormat::Jsonl, &text);
    assert_eq!(ids(&good), ["8"]);
    assert_eq!(
        bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(
        bad[1].1,
        "this is no JSON object: EOF while parsing an object, column 24"
    );
    assert!(
        bad.iter().all(|(_, reason)| !reason.contains(" line ")),
        "the line is said once: {bad:?}"
    );
    assert_eq!(bad[6].1, "`id` has to be a text or a whole number");
}

#[test]
fn an_object_that_says_two_addresses_is_a_bad_row() {
    let text = br#"{"email":"a@example.com","email":"b@example.com"}"#;
    let (good, bad) = found(AudienceFormat::Jsonl, text);
    assert!(
        good.is_empty() && bad[0].1.contains("`email` is said twice"),
        "{bad:?}"
    );
}

#[test]
fn a_giant_line_of_json_is_one_bad_row() {
    let giant = io::repeat(b'x').take(50 << 20);
    let text = giant.chain(&b"\n{\"email\":\"a@example.com\"}\n"[..]);
    let rows: Vec<_> = read_audience(
        text,
        AudienceFormat::Jsonl,
        &by_email(),
        DeliveryChannel::Email,
    )
    .unwrap()
    .collect();
    assert_eq!(rows.len(), 2);
    assert!(
        matches!(&rows[0], Err(AudienceRowError::BadRow(row)) if row.line == 1 && row.sample.len() < 200)
    );
    assert!(rows[1].is_ok());
}

#[test]
fn a_quote_that_is_not_closed_ends_the_reading_and_says_so() {
    let text = (&b"email,name\nada@example.com,Ada\neve@example.com,\"Eve\n"[..])
        .chain(io::repeat(b'x').take(50 << 20));
    let rows: Vec<_> = read_audience(
        text,
        AudienceFormat::Csv,
        &by_email(),
        DeliveryChannel::Email,
    )
    .unwrap()
    .take(9)
    .collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].is_ok());
    let Err(end) = &rows[1] else {
        panic!("{rows:?}")
    };
    let words = format!(
        "line 3: a row is longer than {ROW_BYTES_MAX} bytes; perhaps a quote is not closed"
    );
    assert!(
        matches!(end, AudienceRowError::ReadFailed(_)) && end.to_string().ends_with(&words),
        "{end}"
    );
    let endless = read_audience(
        io::repeat(b'x'),
        AudienceFormat::Csv,
        &by_email(),
        DeliveryChannel::Email,
    );
    assert!(matches!(
        endless.err().unwrap(),
        AudienceOpenError::ReadFailed(_)
    ));
}

#[test]
fn quotes_that_do_not_fit_are_found_however_short_the_file() {
    let words = |text: &str| {
        let rows = match read_audience(
            text.as_bytes(),
            AudienceFormat::Csv,
            &by_email(),
            DeliveryChannel::Email,
        ) {
            Ok(rows) => rows,
            Err(unreadable) => return unreadable.to_string(),
        };
        let troubles: Vec<String> = rows
            .filter_map(|row| match row {
                Err(AudienceRowError::ReadFailed(error)) => Some(error.to_string()),
                _ => None,
            })
            .collect();
        troubles.join("; ")
    };
    let not_closed = words("email,name\na@b.example,\"A\nb@b.example,B\nc@b.example,C\n");
    assert!(
        not_closed.contains("line 2: a quote is not closed"),
        "{not_closed}"
    );
    let followed =
        words("email,name\na@b.example,\"A\nb@b.example,B\nc@b.example,\"C\nd@b.example,D\n");
    assert!(
        followed.contains("line 4: something follows a closing quote"),
        "{followed}"
    );
    for fine in [
        "\u{feff}\"email\",\"name\"\r\n\"a@b.example\",\"A \"\"B\"\"\"\r\n",
        "email,name\na@b.example,\"\"\nb@b.example,B \"the\" C\n",
        "email,name\na@b.example,\"two\nlines\"",
    ] {
        assert_eq!(words(fine), "", "{fine}");
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_file_that_breaks_off_is_not_taken_for_its_end() {
    for (format, text) in [
        (AudienceFormat::Csv, "email\na@example.com\n"),
        (AudienceFormat::Jsonl, "{\"email\":\"a@example.com\"}\n"),
    ] {
        let mut rows = read_audience(
            text.as_bytes().chain(Broken),
            format,
            &by_email(),
            DeliveryChannel::Email,
        )
        .unwrap();
        assert!(rows.next().unwrap().is_ok());
        assert!(matches!(
            rows.next(),
            Some(Err(AudienceRowError::ReadFailed(_)))
        ));
        assert!(rows.next().is_none());
    }
}

#[test]
fn a_report_keeps_the_first_bad_rows_and_counts_them_all() {
    let mut report = AudienceReport::default();
    for row in read_audience(
        format!("email\n{}", "x\n".repeat(250)).as_bytes(),
        AudienceFormat::Csv,
        &by_email(),
        DeliveryChannel::Email,
    )
    .unwrap()
    {
        match row {
            Err(AudienceRowError::BadRow(row)) => report.count_bad(row),
            _ => report.count_good(),
        }
    }
    assert_eq!(
        (report.good, report.bad, report.samples.len()),
        (0, 250, 100)
    );
    assert_eq!(
        serde_json::from_str::<AudienceReport>(&serde_json::to_string(&report).unwrap()).unwrap(),
        report
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_every_recipient_is_sound(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let starts = [(AudienceFormat::Csv, "email,id\na@example.com,"), (AudienceFormat::Tsv, "email\tid\na@example.com\t"), (AudienceFormat::Jsonl, "")];
        for (format, start) in starts {
            let text = [start.as_bytes(), &bytes[..]].concat();
            // Quotes that do not fit may be found at once.
            let Ok(rows) = read_audience(&text[..], format, &by_email(), DeliveryChannel::Email) else { continue };
            for recipient in rows.flatten() {
                prop_assert!(!recipient.id.is_empty() && recipient.id.len() <= 255);
                prop_assert!(!recipient.address.contains(['\r', '\n', ' ']));
            }
        }
    }

    #[test]
    fn what_was_written_is_read(names in prop::collection::vec("\\PC{0,10}", 1..20)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["email", "name"]).unwrap();
        for name in &names {
            writer.write_record(["a@example.com", name]).unwrap();
        }
        let (good, bad) = found(AudienceFormat::Csv, &writer.into_inner().unwrap());
        prop_assert!(bad.is_empty());
        let read: Vec<&str> = good.iter().map(|it| it.data["name"].as_str().unwrap()).collect();
        prop_assert_eq!(read, names);
    }
}
