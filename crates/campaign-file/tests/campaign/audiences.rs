//! Audience readers: recipients, invalid rows and files that cannot be read.

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

/// Reads an audience: the recipients, and the lines and reasons of invalid rows.
fn read_rows(format: AudienceFormat, bytes: &[u8]) -> (Vec<AudienceRecipient>, Vec<(u64, String)>) {
    let (mut recipients, mut invalid) = (Vec::new(), Vec::new());
    for row in read_audience(bytes, format, &by_email(), DeliveryChannel::Email).unwrap() {
        match row {
            Ok(recipient) => recipients.push(recipient),
            Err(AudienceRowError::InvalidRow(row)) => invalid.push((row.line, row.reason)),
            Err(AudienceRowError::ReadFailed(error)) => panic!("{error}"),
        }
    }
    (recipients, invalid)
}

fn ids(recipients: &[AudienceRecipient]) -> Vec<&str> {
    recipients.iter().map(|it| it.id.as_str()).collect()
}

#[test]
fn a_table_has_recipients_and_their_fields() {
    let (recipients, invalid) = read_rows(
        AudienceFormat::Csv,
        b"id,email,name\n1,ada@example.com,\"Ada, \"\"Countess\"\"\"\n2, eve@example.com ,\n",
    );
    assert_eq!((ids(&recipients), invalid), (vec!["1", "2"], vec![]));
    assert_eq!(recipients[0].data["name"], "Ada, \"Countess\"");
    assert_eq!(
        (recipients[1].address.as_str(), &recipients[1].data["name"]),
        ("eve@example.com", &"".into())
    );
    assert_eq!(recipients[0].data.len(), 1);
}

#[test]
fn tables_of_spreadsheet_programs_are_read() {
    let windows =
        b"\xef\xbb\xbfemail,name,\r\nada@example.com,\"Ada\r\nL\",\r\n\r\neve@example.com,Eve,x";
    let (recipients, invalid) = read_rows(AudienceFormat::Csv, windows);
    assert_eq!(
        (ids(&recipients), invalid),
        (vec!["ada@example.com", "eve@example.com"], vec![])
    );
    assert_eq!(recipients[0].data["name"], "Ada\r\nL");
    assert_eq!(recipients[1].data.len(), 1);
    let (recipients, _) = read_rows(AudienceFormat::Csv, b"email\nAda@Example.com\n");
    assert_eq!(
        (&*recipients[0].id, &*recipients[0].address),
        ("ada@example.com", "Ada@example.com"),
        "uppercase and lowercase forms have one id"
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
    let (recipients, _) = read_rows(
        AudienceFormat::Tsv,
        b"name\temail\nAda, L\tada@example.com\n",
    );
    assert_eq!(recipients[0].data["name"], "Ada, L");
}

#[test]
fn rows_after_an_invalid_row_are_read() {
    let (recipients, invalid) = read_rows(
        AudienceFormat::Csv,
        b"id,email,name\n1,ada,x\n2,a@example.com\n3,a@example.com,x,y\n4,a@example.com,\xff\n ,a@example.com,x\n6,b@example.com,x\n",
    );
    assert_eq!(ids(&recipients), ["6"]);
    let lines: Vec<u64> = invalid.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6]);
    for ((_, reason), expected) in invalid.iter().zip([
        "no @",
        "2 fields",
        "4 fields",
        "`name` is not UTF-8",
        "the id is empty",
    ]) {
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn an_id_with_control_characters_or_more_than_255_bytes_is_invalid() {
    let text = format!(
        "id,email\n{},a@example.com\n\"a\nb\",a@example.com\n",
        "x".repeat(256)
    );
    let (recipients, invalid) = read_rows(AudienceFormat::Csv, text.as_bytes());
    assert_eq!((recipients.len(), invalid.len()), (0, 2));
}

#[test]
fn a_table_without_a_required_column_is_rejected() {
    for (bytes, expected) in [
        (&b""[..], "empty"),
        (b"id,name\n", "column `email` not found among `id`, `name`"),
        (
            b"mail;name\n",
            "column `email` not found among `mail;name`; set `delimiter: \";\"`?",
        ),
        (b"email;name\n", "set `delimiter: \";\"`?"),
        (b"email,name,name\n", "duplicate column `name`"),
        (b"email,\xff\n", "not UTF-8"),
    ] {
        let error = read_audience(
            bytes,
            AudienceFormat::Csv,
            &by_email(),
            DeliveryChannel::Email,
        )
        .err()
        .unwrap();
        assert!(
            matches!(&error, AudienceOpenError::InvalidHeader(it) if it.to_string().contains(expected)),
            "{error}"
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
fn the_id_and_the_address_can_be_fields_of_any_name() {
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
    let recipients: Vec<AudienceRecipient> = rows.map(Result::unwrap).collect();
    assert_eq!(
        (recipients[0].id.as_str(), recipients[0].address.as_str()),
        ("7", "+4930123456")
    );
    assert_eq!(recipients[0].data["id"], "x");
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
fn json_lines_have_recipients_and_their_fields() {
    let text = b"\xef\xbb\xbf{\"id\":12,\"email\":\"ada@example.com\",\"cart\":[{\"n\":1}]}\r\n\r\n{\"email\":\"eve@example.com\"}";
    let (recipients, invalid) = read_rows(AudienceFormat::Jsonl, text);
    assert_eq!(
        (ids(&recipients), invalid),
        (vec!["12", "eve@example.com"], vec![])
    );
    assert_eq!(recipients[0].data["cart"][0]["n"], 1);
}

#[test]
fn lines_that_are_not_objects_are_invalid_rows() {
    let mut text = b"[1]\n{\"email\":\"a@example.com\"\n{\"email\":{}}\n{}\n\xff\n".to_vec();
    text.extend(
        [
            b"[".repeat(100_000),
            b"{\"id\":true,\"email\":\"a@example.com\"}".to_vec(),
        ]
        .join(&b'\n'),
    );
    text.extend(b"\n{\"id\":\"8\",\"email\":\"a@example.com\"}\n");
    let (recipients, invalid) = read_rows(AudienceFormat::Jsonl, &text);
    assert_eq!(ids(&recipients), ["8"]);
    assert_eq!(
        invalid.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(
        invalid[1].1,
        "invalid JSON object: EOF while parsing an object, column 24"
    );
    assert!(
        invalid.iter().all(|(_, reason)| !reason.contains(" line ")),
        "the reason does not repeat the line: {invalid:?}"
    );
    assert_eq!(invalid[6].1, "field `id` must be a text or a whole number");
}

#[test]
fn an_object_with_a_duplicate_key_is_an_invalid_row() {
    let text = br#"{"email":"a@example.com","email":"b@example.com"}"#;
    let (recipients, invalid) = read_rows(AudienceFormat::Jsonl, text);
    assert!(
        recipients.is_empty() && invalid[0].1.contains("duplicate key `email`"),
        "{invalid:?}"
    );
}

#[test]
fn a_json_line_that_is_too_long_is_one_invalid_row() {
    let long_line = io::repeat(b'x').take(50 << 20);
    let text = long_line.chain(&b"\n{\"email\":\"a@example.com\"}\n"[..]);
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
        matches!(&rows[0], Err(AudienceRowError::InvalidRow(row)) if row.line == 1 && row.sample.len() < 200)
    );
    assert!(rows[1].is_ok());
}

#[test]
fn an_unclosed_quote_in_a_long_table_is_an_error_with_its_line() {
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
    let expected =
        format!("line 3: the row is longer than {ROW_BYTES_MAX} bytes; is a quote not closed?");
    assert!(
        matches!(end, AudienceRowError::ReadFailed(_)) && end.to_string().ends_with(&expected),
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
fn unbalanced_quotes_are_found_in_a_short_table() {
    let read_errors = |text: &str| {
        let rows = match read_audience(
            text.as_bytes(),
            AudienceFormat::Csv,
            &by_email(),
            DeliveryChannel::Email,
        ) {
            Ok(rows) => rows,
            Err(error) => return error.to_string(),
        };
        let errors: Vec<String> = rows
            .filter_map(|row| match row {
                Err(AudienceRowError::ReadFailed(error)) => Some(error.to_string()),
                _ => None,
            })
            .collect();
        errors.join("; ")
    };
    let unclosed = read_errors("email,name\na@b.example,\"A\nb@b.example,B\nc@b.example,C\n");
    assert!(
        unclosed.contains("line 2: a quote is not closed"),
        "{unclosed}"
    );
    let text_after_quote =
        read_errors("email,name\na@b.example,\"A\nb@b.example,B\nc@b.example,\"C\nd@b.example,D\n");
    assert!(
        text_after_quote.contains("line 4: text follows the closing quote"),
        "{text_after_quote}"
    );
    for valid in [
        "\u{feff}\"email\",\"name\"\r\n\"a@b.example\",\"A \"\"B\"\"\"\r\n",
        "email,name\na@b.example,\"\"\nb@b.example,B \"the\" C\n",
        "email,name\na@b.example,\"two\nlines\"",
    ] {
        assert_eq!(read_errors(valid), "", "{valid}");
    }
}

/// A reader that fails.
struct FailingReader;

impl Read for FailingReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_read_error_is_not_the_end_of_the_audience() {
    for (format, text) in [
        (AudienceFormat::Csv, "email\na@example.com\n"),
        (AudienceFormat::Jsonl, "{\"email\":\"a@example.com\"}\n"),
    ] {
        let mut rows = read_audience(
            text.as_bytes().chain(FailingReader),
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
fn a_report_has_the_first_invalid_rows_and_counts_all() {
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
            Err(AudienceRowError::InvalidRow(row)) => report.count_invalid(row),
            _ => report.count_valid(),
        }
    }
    assert_eq!(
        (report.valid, report.invalid, report.samples.len()),
        (0, 250, 100)
    );
    assert_eq!(
        serde_json::from_str::<AudienceReport>(&serde_json::to_string(&report).unwrap()).unwrap(),
        report
    );
}

proptest! {
    #[test]
    fn no_input_causes_a_panic_and_every_recipient_is_valid(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let starts = [(AudienceFormat::Csv, "email,id\na@example.com,"), (AudienceFormat::Tsv, "email\tid\na@example.com\t"), (AudienceFormat::Jsonl, "")];
        for (format, start) in starts {
            let text = [start.as_bytes(), &bytes[..]].concat();
            // Unbalanced quotes may be found with the header.
            let Ok(rows) = read_audience(&text[..], format, &by_email(), DeliveryChannel::Email) else { continue };
            for recipient in rows.flatten() {
                prop_assert!(!recipient.id.is_empty() && recipient.id.len() <= 255);
                prop_assert!(!recipient.address.contains(['\r', '\n', ' ']));
            }
        }
    }

    #[test]
    fn written_values_are_read_back(names in prop::collection::vec("\\PC{0,10}", 1..20)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["email", "name"]).unwrap();
        for name in &names {
            writer.write_record(["a@example.com", name]).unwrap();
        }
        let (recipients, invalid) = read_rows(AudienceFormat::Csv, &writer.into_inner().unwrap());
        prop_assert!(invalid.is_empty());
        let read: Vec<&str> = recipients.iter().map(|it| it.data["name"].as_str().unwrap()).collect();
        prop_assert_eq!(read, names);
    }
}
