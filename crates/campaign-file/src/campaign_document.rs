//! Parsing and validation of campaign files, and the conversion of campaigns to and from the stored
//! document.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_saphyr::Error as Yaml;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::MergeKeyPolicy;

use crate::campaign::{AudienceFormat, AudienceSpec, Campaign, UNSUBSCRIBE_PART};
use crate::error::Error;
use crate::provider_ref::ProviderRef;
use crate::template_part::TemplatePart;

/// Maximum size in bytes of a campaign file, and of each file that it references.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum size in bytes of a stored document: every worker of a run holds it in memory.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;
const PARTS_MAX: usize = 32;
/// Maximum length in bytes of an id, a version, or the name of a provider or template part.
const NAME_BYTES_MAX: usize = 128;
const JOB_SIZE_MAX: u32 = 1_000;
/// Longest backoff that a campaign can configure: one week.
const BACKOFF_MS_MAX: u64 = 7 * 24 * 3_600_000;

impl Campaign {
    /// Reads a campaign file and the template files that it references, and validates the campaign.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = read_text_file(path).map_err(|source| Error::Read {
            path: path.display().to_string(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &|file| read_text_file(&folder.join(file)))
    }

    /// Parses the text of a campaign file and validates the campaign; `open` reads a file that it
    /// references.
    pub fn parse(text: &str, open: &dyn Fn(&str) -> io::Result<String>) -> Result<Self, Error> {
        let draft: Campaign<TemplatePart> =
            serde_saphyr::from_str_with_options(text, yaml_options())
                .map_err(|error| syntax_error(&error, text))?;
        let campaign = draft.resolve_template_files(open)?;
        campaign.validate()?;
        Ok(campaign)
    }

    /// Returns the document that the store keeps for this campaign. Equal campaigns have equal
    /// documents.
    pub fn to_document(&self) -> String {
        // Serialization cannot fail: all keys are strings. Serializing to a value first puts all
        // keys in order.
        serde_json::to_value(self)
            .map(|it| it.to_string())
            .unwrap_or_default()
    }

    /// Parses and validates a stored document. Inverse of [`to_document`](Self::to_document).
    pub fn from_document(document: &str) -> Result<Self, Error> {
        let campaign: Self = serde_json::from_str(document).map_err(Error::InvalidDocument)?;
        campaign.validate()?;
        Ok(campaign)
    }

    fn validate(&self) -> Result<(), Error> {
        check_name("campaign", &self.id)?;
        match &self.provider {
            ProviderRef::Named(provider) => check_name("provider", provider)?,
            ProviderRef::Inline(definition) if definition.is_empty() => {
                return Err(Error::invalid_field(
                    "provider",
                    "the inline definition is empty",
                ));
            }
            ProviderRef::Inline(_) => {}
        }
        if let Some(version) = &self.version {
            check_name("version", version)?;
        }
        self.validate_template()?;
        self.audience.validate()?;
        self.schedule
            .start_time()
            .map_err(|error| Error::invalid_field(error.field(), error.to_string()))?;
        if !(1..=JOB_SIZE_MAX).contains(&self.job_size) {
            return Err(Error::invalid_field(
                "job_size",
                format!("must be between 1 and {JOB_SIZE_MAX}"),
            ));
        }
        self.validate_retries()
    }

    fn validate_template(&self) -> Result<(), Error> {
        if self.template.is_empty() || self.template.len() > PARTS_MAX {
            return Err(Error::invalid_field(
                "template",
                format!("must have between 1 and {PARTS_MAX} parts"),
            ));
        }
        for part in self.template.keys() {
            check_name(&format!("template.{part}"), part)?;
        }
        if self.unsubscribe.is_some() && self.template.contains_key(UNSUBSCRIBE_PART) {
            return Err(Error::invalid_field(
                "unsubscribe",
                "duplicate of `template.unsubscribe`: remove one of the two",
            ));
        }
        if self
            .template_parts()
            .map(|(_, text)| text.len())
            .sum::<usize>()
            > DOCUMENT_BYTES_MAX
        {
            return Err(Error::invalid_field(
                "template",
                format!("all parts together are longer than {DOCUMENT_BYTES_MAX} bytes"),
            ));
        }
        Ok(())
    }

    fn validate_retries(&self) -> Result<(), Error> {
        let retries = &self.retries;
        for (field, value) in [
            ("retries.max_sends", retries.max_sends),
            ("retries.max_attempts", retries.max_attempts),
        ] {
            if value == 0 {
                return Err(Error::invalid_field(field, "must be at least 1"));
            }
        }
        if retries.max_backoff_ms > BACKOFF_MS_MAX {
            return Err(Error::invalid_field(
                "retries.max_backoff_ms",
                format!("must be at most {BACKOFF_MS_MAX} (one week)"),
            ));
        }
        if retries.initial_backoff_ms > retries.max_backoff_ms {
            return Err(Error::invalid_field(
                "retries.initial_backoff_ms",
                "must be at most `retries.max_backoff_ms`",
            ));
        }
        Ok(())
    }
}

impl AudienceSpec {
    fn validate(&self) -> Result<(), Error> {
        let format = self.resolve_format()?;
        for (field, value) in [
            ("file", Some(&self.file)),
            ("id", self.id.as_ref()),
            ("address", self.address.as_ref()),
        ] {
            if value.is_some_and(|value| value.trim().is_empty()) {
                return Err(Error::invalid_field(
                    format!("audience.{field}"),
                    "must not be empty",
                ));
            }
        }
        match self.delimiter {
            Some(_) if format == AudienceFormat::Jsonl => Err(Error::invalid_field(
                "audience.delimiter",
                "is allowed for csv and tsv only",
            )),
            Some(c)
                if !c.is_ascii()
                    || c.is_ascii_alphanumeric()
                    || matches!(c, '"' | '\r' | '\n' | '\0') =>
            {
                Err(Error::invalid_field(
                    "audience.delimiter",
                    "must be one ASCII character other than a letter, a digit or a quote, such as `;`",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Campaign<TemplatePart> {
    fn resolve_template_files(
        self,
        open: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<Campaign, Error> {
        let mut template = BTreeMap::new();
        for (name, part) in self.template {
            let text = match part {
                TemplatePart::Text(text) => text,
                TemplatePart::File(path) => {
                    open(&path).map_err(|source| Error::Read { path, source })?
                }
            };
            template.insert(name, text);
        }
        let Self {
            id,
            channel,
            provider,
            unsubscribe,
            audience,
            schedule,
            job_size,
            version,
            retries,
            ..
        } = self;
        Ok(Campaign {
            id,
            channel,
            provider,
            template,
            unsubscribe,
            audience,
            schedule,
            job_size,
            version,
            retries,
        })
    }
}

/// Fails if the text is not a name that can be part of an id, a key and a path.
fn check_name(field: &str, text: &str) -> Result<(), Error> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_allowed) {
        let message = format!(
            "invalid name `{}`: use letters, digits, `.`, `_` and `-`, at most {NAME_BYTES_MAX}",
            escape_excerpt(text)
        );
        return Err(Error::invalid_field(field, message));
    }
    Ok(())
}

fn escape_excerpt(text: &str) -> String {
    text.chars()
        .take(40)
        .flat_map(char::escape_default)
        .collect()
}

fn read_text_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file is longer than {FILE_BYTES_MAX} bytes"),
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8"))
}

/// Parser limits that are sufficient for any campaign file. Aliases count once per expansion.
fn yaml_options() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = 20_000;
    budget.max_nodes = 10_000;
    budget.max_aliases = 100;
    budget.max_anchors = 100;
    budget.max_depth = 32;
    budget.max_documents = 1;
    budget.max_total_scalar_bytes = DOCUMENT_BYTES_MAX;
    budget.max_recorded_anchor_events = 20_000;
    budget.max_recorded_anchor_bytes = DOCUMENT_BYTES_MAX;
    let mut options = serde_saphyr::Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = 20_000;
    options.alias_limits.max_replay_stack_depth = 8;
    options.merge_keys = MergeKeyPolicy::Error;
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

fn syntax_error(error: &serde_saphyr::Error, text: &str) -> Error {
    let location = error.location();
    let (line, column) = location.map_or((1, 1), |it| (it.line(), it.column()));
    let error = error.without_snippet();
    if is_unquoted_template(text, line, column) {
        return Error::Syntax {
            line,
            column,
            message: "templates must be quoted: \"{{ name }}\"".to_owned(),
        };
    }
    let message = describe_yaml_error(error).unwrap_or_else(|| {
        let text = error.to_string();
        // The error has the position in its own fields, so the message does not repeat it.
        simplify_parser_message(
            text.strip_suffix(&format!(" at line {line}, column {column}"))
                .unwrap_or(&text),
        )
    });
    Error::Syntax {
        line,
        column,
        message,
    }
}

/// Returns whether a template begins at this position or one character before it: YAML parses the
/// braces of an unquoted template as a flow mapping.
fn is_unquoted_template(text: &str, line: u64, column: u64) -> bool {
    let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let line = text
        .lines()
        .nth(index(line.saturating_sub(1)))
        .unwrap_or_default();
    let is_tag_at = |offset: u64| {
        let start: String = line.chars().skip(index(offset)).take(2).collect();
        start == "{{" || start == "{%"
    };
    is_tag_at(column.saturating_sub(1)) || is_tag_at(column.saturating_sub(2))
}

/// Rephrases a parser message without programming terms, for authors of campaign files.
fn simplify_parser_message(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("required field {field} is missing");
    }
    match (message, message.split_once(", expected ")) {
        ("expected string scalar", _) => "expected one value: a text or a number".to_owned(),
        ("expected mapping start", _) => {
            "expected fields with values, such as `name: value`".to_owned()
        }
        (_, Some((found, expected)))
            if found.starts_with("invalid type: ") || found.starts_with("unknown variant ") =>
        {
            format!("expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// Returns a message for authors of campaign files where the parser's own message is unsuitable,
/// else `None`.
fn describe_yaml_error(error: &serde_saphyr::Error) -> Option<String> {
    Some(match error {
        Yaml::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate field `{}`", escape_excerpt(key))
        }
        Yaml::DuplicateMappingKey { key: None, .. } => "duplicate field".to_owned(),
        Yaml::InvalidScalar { ty, .. } if ty.starts_with('u') => {
            "expected a whole number, 0 or greater".to_owned()
        }
        Yaml::InvalidScalar { ty: "char", .. } | Yaml::InvalidCharNotSingleScalar { .. } => {
            "expected one character".to_owned()
        }
        Yaml::Eof { .. } => "the file is empty".to_owned(),
        Yaml::MergeKeyNotAllowed { .. } => "merge keys (`<<`) are not supported".to_owned(),
        Yaml::MultipleDocuments { .. }
        | Yaml::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => "a second document starts here (`---`): a campaign file has one document".to_owned(),
        Yaml::Budget { .. }
        | Yaml::AliasReplayLimitExceeded { .. }
        | Yaml::AliasExpansionLimitExceeded { .. }
        | Yaml::AliasReplayStackDepthExceeded { .. } => {
            "the campaign file is too large or nested too deeply".to_owned()
        }
        _ => return None,
    })
}
