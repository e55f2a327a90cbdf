//! A provider of the settings of a server: which tenants may use it, and which senders they may
//! name.

use std::sync::Arc;

use lettre::message::Mailbox;
use onward_campaign_core::{AudienceRecipient, ComposeError, ComposeMessage, RenderedMessage};
use onward_campaign_file::{Campaign, DeployPrerequisite, TemplateComposer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::provider_spec::ProviderSpec;
use crate::spec_error::ProviderDocumentError;

/// The message part with the sender.
const FROM_PART: &str = "from";

/// Configuration of a provider with the limits of its use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct NamedProvider {
    /// The tenants that may use the provider. default: all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    /// The senders that messages may have: addresses, or domains such as `@example.com`. default:
    /// any sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Vec<String>>,
    /// The provider itself.
    #[serde(flatten)]
    pub spec: ProviderSpec,
}

impl TryFrom<Value> for NamedProvider {
    type Error = ProviderDocumentError;

    fn try_from(mut document: Value) -> Result<Self, ProviderDocumentError> {
        let mut take_list = |field: &str| -> Result<Option<Vec<String>>, ProviderDocumentError> {
            let Some(list) = document
                .as_object_mut()
                .and_then(|fields| fields.remove(field))
            else {
                return Ok(None);
            };
            let list = serde_json::from_value(list);
            list.map(Some)
                .map_err(|_| ProviderDocumentError::UnexpectedValue {
                    place: format!("`{field}`"),
                    expected: "a list of strings".to_owned(),
                })
        };
        let (tenants, from) = (take_list("tenants")?, take_list("from")?);
        Ok(Self {
            tenants,
            from,
            spec: ProviderSpec::try_from(document)?,
        })
    }
}

impl From<ProviderSpec> for NamedProvider {
    /// A provider for all tenants and senders.
    fn from(spec: ProviderSpec) -> Self {
        Self {
            tenants: None,
            from: None,
            spec,
        }
    }
}

/// The sender of a message is not on the list of its provider.
#[derive(Debug, Error)]
#[error("the sender `{sender}` is not allowed for this provider: use one of {}", allowed.join(", "))]
pub(crate) struct SenderNotAllowed {
    sender: String,
    allowed: Vec<String>,
}

impl NamedProvider {
    /// Whether campaigns of this tenant may use the provider.
    pub(crate) fn is_open_to(&self, tenant: &str) -> bool {
        self.tenants
            .as_ref()
            .is_none_or(|tenants| tenants.iter().any(|it| it == tenant))
    }

    /// Checks the sender of a campaign, if the provider limits it. A sender with variables is
    /// checked in each message.
    pub(crate) fn check_campaign_sender(&self, campaign: &Campaign) -> Option<DeployPrerequisite> {
        const ID: &str = "provider.from";
        let allowed = self.from.as_ref()?;
        let Some(sender) = campaign.template.get(FROM_PART) else {
            return Some(DeployPrerequisite::met(ID, "the provider sets the sender"));
        };
        if sender.contains('{') {
            let message = "the sender has variables: it is checked in each message";
            return Some(DeployPrerequisite::met(ID, message));
        }
        Some(match check_sender(sender, allowed) {
            Ok(()) => DeployPrerequisite::met(ID, "the provider allows the sender"),
            Err(error) => DeployPrerequisite::unmet(ID, &error),
        })
    }

    /// Returns a composer that refuses messages whose sender the provider does not allow.
    pub(crate) fn limit_senders(&self, templates: TemplateComposer) -> Arc<dyn ComposeMessage> {
        match &self.from {
            None => Arc::new(templates),
            Some(allowed) => Arc::new(SenderCheckedComposer {
                templates,
                allowed: allowed.clone(),
            }),
        }
    }
}

/// Renders messages, and refuses those whose sender is not allowed.
struct SenderCheckedComposer {
    templates: TemplateComposer,
    allowed: Vec<String>,
}

impl ComposeMessage for SenderCheckedComposer {
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        let message = self.templates.compose_message(recipient)?;
        // Without the part, the provider sets the sender itself.
        if let Some(sender) = message.find_part(FROM_PART).filter(|text| !text.is_empty()) {
            check_sender(sender, &self.allowed).map_err(ComposeError::new)?;
        }
        Ok(message)
    }
}

/// Fails unless the list has the address of the sender, or its domain.
fn check_sender(sender: &str, allowed: &[String]) -> Result<(), SenderNotAllowed> {
    let mailbox = sender.trim().parse::<Mailbox>().ok();
    let is_allowed = |entry: &String| match (&mailbox, entry.strip_prefix('@')) {
        (Some(mailbox), Some(domain)) => mailbox.email.domain().eq_ignore_ascii_case(domain),
        (Some(mailbox), None) => entry.eq_ignore_ascii_case(mailbox.email.as_ref()),
        // Phone numbers and accounts are no mailboxes.
        (None, Some(_)) => false,
        (None, None) => entry == sender.trim(),
    };
    if allowed.iter().any(is_allowed) {
        return Ok(());
    }
    Err(SenderNotAllowed {
        sender: sender.to_owned(),
        allowed: allowed.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{NamedProvider, check_sender};

    #[test]
    fn a_sender_is_allowed_by_its_address_or_its_domain() {
        let allowed = ["news@shop.example", "@mail.example", "+49301234567"].map(str::to_owned);
        for sender in [
            "news@shop.example",
            "News <NEWS@shop.example>",
            "Ada <ada@MAIL.example>",
            "+49301234567",
        ] {
            assert!(check_sender(sender, &allowed).is_ok(), "{sender}");
        }
        for sender in [
            "ada@shop.example",
            "news@shop.example <ada@evil.example>",
            "ada@x.mail.example",
            "ada@evil.example, news@shop.example",
            "ada@evil.example, ada@mail.example",
            "+49301234568",
            "@mail.example",
            "",
        ] {
            assert!(check_sender(sender, &allowed).is_err(), "{sender}");
        }
    }

    #[test]
    fn the_limits_of_a_provider_stand_beside_its_configuration() {
        let document = json!({
            "tenants": ["acme"], "from": ["@shop.example"],
            "smtp": { "url": "smtps://mail.example.org" },
        });
        let provider: NamedProvider = serde_json::from_value(document).unwrap();
        assert!(provider.is_open_to("acme") && !provider.is_open_to("globex"));
        let written = serde_json::to_value(&provider).unwrap();
        assert_eq!(
            serde_json::from_value::<NamedProvider>(written).unwrap(),
            provider
        );
        let error = serde_json::from_value::<NamedProvider>(json!({ "tenants": "acme" }));
        assert_eq!(
            error.unwrap_err().to_string(),
            "`tenants` must be a list of strings"
        );
    }
}
