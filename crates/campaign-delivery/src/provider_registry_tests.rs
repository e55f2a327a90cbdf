//! Tests of the provider registry: nodes that join and leave never exceed the rate limits of a
//! provider together, and a deployment check finds messages that the provider could not send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{EnvironmentSecrets, ProviderSpec};
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::AudienceRecipient;
use onward_campaign_file::{Campaign, CampaignChecker, DeployPrerequisite, TemplateComposer};
use onward_store::memory::MemoryStore;
use onward_store::tables::NodeRow;
use onward_store::{Commit, ManualClock, Store, StoreClock as _, StorePolicy};
use tokio::task::JoinHandle;

use super::{INLINE_PROVIDERS_MAX, InlineProviderPolicy, ProviderRegistry, check_inline_provider};

const TICK: Duration = Duration::from_millis(10);

struct RegistryFixture {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    spec: ProviderSpec,
    /// Times at which a send was admitted, in microseconds.
    admitted: Vec<i64>,
}

impl RegistryFixture {
    fn new(limits: &str) -> Self {
        let clock = Arc::new(ManualClock::new(
            Timestamp::from_micros(1_767_225_600_000_000).unwrap(),
        ));
        let store = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::clone(&clock) as _,
        ));
        let spec =
            format!(r#"{{"smtp": {{"url": "smtp://127.0.0.1:25", "rate_limits": {limits}}}}}"#);
        Self {
            clock,
            store,
            spec: serde_json::from_str(&spec).unwrap(),
            admitted: Vec::new(),
        }
    }

    /// Starts a registry that tracks the live nodes as the node `name`.
    fn spawn_registry(&self, name: &str) -> (Arc<ProviderRegistry>, JoinHandle<()>) {
        let registry = Arc::new(ProviderRegistry::new(
            BTreeMap::new(),
            InlineProviderPolicy::Reject,
            EnvironmentSecrets,
        ));
        let (store, tracking, name) = (
            Arc::clone(&self.store),
            Arc::clone(&registry),
            SharedText::from(name),
        );
        (
            registry,
            tokio::spawn(async move { tracking.track_live_nodes(&*store, &name).await }),
        )
    }

    async fn insert_node(&self, name: &str, seen_ms: u64) {
        let now = self.clock.now();
        let seen_until = now.plus_ms(seen_ms);
        let node = NodeRow {
            node_id: name.into(),
            name: name.into(),
            address: None,
            started_at: now,
            seen_until,
        };
        self.store
            .commit(Commit::new().insert(&node))
            .await
            .unwrap();
    }

    /// Advances the time, and admits all sends that these registries allow. Returns their number.
    async fn advance_time(&mut self, ms: u64, registries: &[&ProviderRegistry]) -> usize {
        let before = self.admitted.len();
        for _ in 0..Duration::from_millis(ms).as_millis() / TICK.as_millis() {
            self.clock.advance_ms(10);
            tokio::time::sleep(TICK).await;
            for registry in registries {
                let limiter = registry
                    .get_or_build_provider("mail", &self.spec)
                    .unwrap()
                    .rate_limiter;
                while limiter
                    .try_acquire("ada@example.org", self.clock.now())
                    .is_ok()
                {
                    self.admitted.push(self.clock.now().as_micros());
                }
            }
        }
        self.admitted.len() - before
    }

    /// The maximum number of sends in any second.
    fn peak_per_second(&self) -> usize {
        let within = |first: &i64| {
            self.admitted
                .iter()
                .filter(|at| (0..1_000_000).contains(&(*at - first)))
                .count()
        };
        self.admitted.iter().map(within).max().unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_joining_node_waits_until_the_others_have_reduced_their_share() {
    let mut fixture = RegistryFixture::new(r#"{"per_second": 20}"#);
    fixture.insert_node("a", 3_600_000).await;
    let (first, _tracking) = fixture.spawn_registry("a");
    assert!(
        (95..=101).contains(&fixture.advance_time(5_000, &[&first]).await),
        "a single node has the whole limit"
    );
    for name in ["b", "c"] {
        fixture.insert_node(name, 3_600_000).await;
    }
    let ((second, _b), (third, _c)) = (fixture.spawn_registry("b"), fixture.spawn_registry("c"));
    fixture
        .advance_time(30_000, &[&first, &second, &third])
        .await;
    let all = fixture
        .advance_time(10_000, &[&first, &second, &third])
        .await;
    assert!(
        (190..=201).contains(&all),
        "all nodes together have the same limit: {all}"
    );
    assert!(
        fixture.peak_per_second() <= 21,
        "{}",
        fixture.peak_per_second()
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_registered_sends_nothing_where_limits_apply() {
    let mut fixture = RegistryFixture::new(r#"{"per_domain": {"per_second": 20}}"#);
    let (registry, _tracking) = fixture.spawn_registry("a");
    assert_eq!(
        fixture.advance_time(5_000, &[&registry]).await,
        0,
        "its row is not stored yet"
    );
    fixture.insert_node("a", 8_000).await;
    assert!(fixture.advance_time(8_000, &[&registry]).await > 150);
    fixture.advance_time(5_000, &[&registry]).await;
    assert_eq!(
        fixture.advance_time(5_000, &[&registry]).await,
        0,
        "its row has expired"
    );
}

#[tokio::test(start_paused = true)]
async fn without_limits_no_send_waits() {
    let fixture = RegistryFixture::new("{}");
    let (registry, _tracking) = fixture.spawn_registry("a");
    let limiter = registry
        .get_or_build_provider("mail", &fixture.spec)
        .unwrap()
        .rate_limiter;
    assert!(
        limiter
            .try_acquire("ada@example.org", fixture.clock.now())
            .is_ok()
    );
}

/// A registry without named providers that allows inline ones.
fn inline_registry() -> ProviderRegistry {
    ProviderRegistry::new(
        BTreeMap::new(),
        InlineProviderPolicy::Allow,
        EnvironmentSecrets,
    )
}

#[test]
fn a_provider_in_use_is_never_built_twice() {
    let registry = inline_registry();
    let spec = |timeout_ms: usize| -> ProviderSpec {
        let folder = serde_json::json!({ "path": std::env::temp_dir(), "timeout_ms": timeout_ms });
        serde_json::from_value(serde_json::json!({ "folder": folder })).unwrap()
    };
    let used = registry.get_or_build_provider("folder", &spec(25)).unwrap();
    for timeout_ms in 1_000..1_000 + 2 * INLINE_PROVIDERS_MAX {
        registry
            .get_or_build_provider("folder", &spec(timeout_ms))
            .unwrap();
    }
    assert!(Arc::ptr_eq(
        &used.provider,
        &registry
            .get_or_build_provider("folder", &spec(25))
            .unwrap()
            .provider
    ));
    assert!(registry.lock_state().providers.len() <= INLINE_PROVIDERS_MAX + 1);
}

fn parse_campaign(channel: &str, provider: &str, template: &str) -> Campaign {
    let text = format!(
        "campaign: c\nchannel: {channel}\nprovider: {provider}\ntemplate: {template}\naudience: {{ file: p.jsonl }}\n"
    );
    Campaign::parse(&text, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
}

/// Returns whether the message fits the provider: on the server, which has no recipients, and for a
/// known recipient.
fn provider_fits(channel: &str, provider: &str, template: &str) -> (bool, bool, String) {
    let campaign = parse_campaign(channel, provider, template);
    let find = |list: Vec<DeployPrerequisite>| {
        list.into_iter()
            .find(|it| it.id == "provider.fits")
            .unwrap()
    };
    let on_server = find(inline_registry().check_campaign(&campaign, "acme"));
    let address = if channel == "email" {
        "ada@example.org"
    } else {
        "+49301234567"
    };
    let data = serde_json::Map::from_iter([("name".to_owned(), "Ada".into())]);
    let mut checker = CampaignChecker::new(
        campaign.clone(),
        Timestamp::from_micros(1_767_225_600_000_000).unwrap(),
    );
    checker.add_recipient(&AudienceRecipient {
        id: "1".to_owned(),
        address: address.to_owned(),
        data,
    });
    let local = find(check_inline_provider(&campaign, checker.sample_message()));
    (
        on_server.pass,
        local.pass,
        format!("{}; {}", on_server.message, local.message),
    )
}

const SMTP: &str = "{ smtp: { url: 'smtp://127.0.0.1:25', tls: none } }";

fn http_provider(body: &str) -> String {
    format!("{{ http: {{ url: 'http://127.0.0.1:80/', body: '{body}' }} }}")
}

#[test]
fn a_message_that_the_provider_cannot_build_is_found_before_deployment() {
    let letter = "{ from: shop@example.com, subject: 'Hi {{ name }}', text: 'Dear {{ name }}' }";
    let script = "{ script: 'Hello {{ name }}', payload: '[1]' }";
    for (channel, provider, template, expected) in [
        (
            "voice",
            SMTP.to_owned(),
            letter,
            "`to` is not an email address",
        ),
        (
            "email",
            SMTP.to_owned(),
            "{ from: shop@example.com, text: '{{ name }}' }",
            "the message has no part `subject`",
        ),
        (
            "voice",
            http_provider(r#"{"to": {{ to }}, "say": {{ scirpt }}}"#),
            script,
            "`scirpt` is not defined",
        ),
        (
            "voice",
            http_provider(r#"{"to": "{{ to }}"}"#),
            script,
            "the body is not JSON",
        ),
    ] {
        let (on_server, local, messages) = provider_fits(channel, &provider, template);
        assert!(
            !on_server && !local && messages.matches(expected).count() == 2,
            "{provider}: {messages}"
        );
    }
    for (channel, provider, template) in [
        ("email", SMTP.to_owned(), letter),
        (
            "voice",
            http_provider(r#"{"to": {{ to }}, "say": {{ script }}}"#),
            script,
        ),
        (
            "voice",
            http_provider(r#"{"to": {{ to }}, "say": {{ payload|safe }}}"#),
            script,
        ),
        (
            "voice",
            format!(
                "{{ folder: {{ path: '{}' }} }}",
                std::env::temp_dir().display()
            ),
            script,
        ),
    ] {
        let (on_server, local, messages) = provider_fits(channel, &provider, template);
        assert!(on_server && local, "{provider}: {messages}");
    }
}

#[test]
fn a_part_that_depends_on_the_recipient_may_be_json() {
    let raw = "{ payload: '[{{ name|length }}]' }";
    let (on_server, local, messages) =
        provider_fits("voice", &http_provider("{{ payload|safe }}"), raw);
    assert!(on_server && local, "{messages}");
}

#[test]
fn an_error_in_a_definition_names_the_setting_and_no_secret() {
    for (provider, expected) in [
        (
            "{ http: { url: 'https://shop:hunter2@api.example.org/' } }",
            "provider http: `http.url` must not contain a user name or password",
        ),
        (
            "{ smtp: { url: 'smtps://x.example', user: u, password: hunter2 } }",
            "`smtp.password` must be a reference",
        ),
    ] {
        let checks =
            check_inline_provider(&parse_campaign("voice", provider, "{ script: Hi }"), None);
        let [
            DeployPrerequisite {
                pass: false,
                message,
                ..
            },
        ] = &checks[..]
        else {
            panic!("{checks:?}")
        };
        assert!(
            message.contains(expected) && !message.contains("hunter2"),
            "{message}"
        );
    }
}

/// A registry with one provider for all tenants, and one for the tenant `acme` and its sender.
fn registry_with_limits() -> ProviderRegistry {
    let provider = |limits: &str| {
        let document = format!(r#"{{{limits}"smtp": {{"url": "smtp://127.0.0.1:25"}}}}"#);
        serde_json::from_str(&document).unwrap()
    };
    let limits = r#""tenants": ["acme"], "from": ["news@acme.example"], "#;
    let named = [("shared", provider("")), ("acme-mail", provider(limits))];
    ProviderRegistry::new(
        named
            .into_iter()
            .map(|(name, provider)| (name.to_owned(), provider))
            .collect(),
        InlineProviderPolicy::Reject,
        EnvironmentSecrets,
    )
}

fn unmet(registry: &ProviderRegistry, provider: &str, from: &str, tenant: &str) -> Vec<String> {
    let template = format!("{{ from: '{from}', subject: Hi, text: Hello }}");
    let campaign = parse_campaign("email", provider, &template);
    let checks = registry.check_campaign(&campaign, tenant);
    let unmet = checks.into_iter().filter(|it| !it.pass);
    unmet
        .map(|it| format!("{}: {}", it.id, it.message))
        .collect()
}

#[test]
fn a_provider_of_another_tenant_is_unknown_and_its_name_is_not_listed() {
    let registry = registry_with_limits();
    let from = "news@acme.example";
    assert_eq!(unmet(&registry, "acme-mail", from, "acme"), [""; 0]);
    assert_eq!(unmet(&registry, "shared", from, "globex"), [""; 0]);
    for name in ["acme-mail", "missing"] {
        assert_eq!(
            unmet(&registry, name, from, "globex"),
            [format!(
                "provider.known: unknown provider {name}: this server has shared"
            )]
        );
    }
    let unknown = unmet(&registry, "missing", from, "acme");
    assert!(
        unknown[0].contains("this server has acme-mail, shared"),
        "{unknown:?}"
    );
}

#[test]
fn a_sender_that_the_provider_does_not_allow_is_refused_before_and_after_deployment() {
    let registry = registry_with_limits();
    let refused = unmet(&registry, "acme-mail", "boss@bank.example", "acme");
    assert_eq!(
        refused,
        [
            "provider.from: the sender `boss@bank.example` is not allowed for this provider: \
          use one of news@acme.example"
        ]
    );
    assert_eq!(
        unmet(&registry, "shared", "boss@bank.example", "acme"),
        [""; 0]
    );
    // A sender with variables is known only when a message is rendered.
    let template = "{ from: '{{ sender }}', subject: Hi, text: Hello }";
    let campaign = parse_campaign("email", "acme-mail", template);
    let (_, named) = registry.find_provider(&campaign, "acme").unwrap();
    let composer = named.limit_senders(TemplateComposer::new(&campaign).unwrap());
    let compose = |sender: &str| {
        let data = serde_json::Map::from_iter([("sender".to_owned(), sender.into())]);
        composer.compose_message(&AudienceRecipient {
            id: "1".to_owned(),
            address: "ada@example.org".to_owned(),
            data,
        })
    };
    assert!(compose("News <news@acme.example>").is_ok());
    assert!(
        compose("boss@bank.example")
            .unwrap_err()
            .to_string()
            .contains("is not allowed for this provider")
    );
}
