//! Tests of the provider registry: nodes that join and leave never exceed the rate limits of a
//! provider together, and a deployment check finds messages that the provider could not send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{EnvironmentSecrets, ProviderSpec};
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::AudienceRecipient;
use onward_campaign_file::{Campaign, CampaignChecker, DeployPrerequisite};
use onward_store::memory::MemoryStore;
use onward_store::tables::NodeRow;
use onward_store::{Commit, ManualClock, Store, StoreClock as _, StorePolicy};
use tokio::task::JoinHandle;

use super::{INLINE_PROVIDERS_MAX, ProviderRegistry, check_inline_provider};

const TICK: Duration = Duration::from_millis(10);

struct RegistryFixture {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    spec: ProviderSpec,
    /// Times at which a send was admitted, in microseconds.
    reached: Vec<i64>,
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
        let spec = format!(r#"{{"smtp": {{"url": "smtp://127.0.0.1:25", "limits": {limits}}}}}"#);
        Self {
            clock,
            store,
            spec: serde_json::from_str(&spec).unwrap(),
            reached: Vec::new(),
        }
    }

    /// Starts a registry that tracks the live nodes as the node `name`.
    fn spawn_registry(&self, name: &str) -> (Arc<ProviderRegistry>, JoinHandle<()>) {
        let house = Arc::new(ProviderRegistry::new(
            BTreeMap::new(),
            false,
            EnvironmentSecrets,
        ));
        let (store, follows, name) = (
            Arc::clone(&self.store),
            Arc::clone(&house),
            SharedText::from(name),
        );
        (
            house,
            tokio::spawn(async move { follows.track_live_nodes(&*store, &name).await }),
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
    async fn advance_time(&mut self, ms: u64, houses: &[&ProviderRegistry]) -> usize {
        let before = self.reached.len();
        for _ in 0..Duration::from_millis(ms).as_millis() / TICK.as_millis() {
            self.clock.advance_ms(10);
            tokio::time::sleep(TICK).await;
            for house in houses {
                let throttle = house
                    .get_or_build_provider("mail", &self.spec)
                    .unwrap()
                    .throttle;
                while throttle
                    .try_acquire("ada@example.org", self.clock.now())
                    .is_ok()
                {
                    self.reached.push(self.clock.now().as_micros());
                }
            }
        }
        self.reached.len() - before
    }

    /// The maximum number of sends in any second.
    fn peak_per_second(&self) -> usize {
        let within = |first: &i64| {
            self.reached
                .iter()
                .filter(|at| (0..1_000_000).contains(&(*at - first)))
                .count()
        };
        self.reached.iter().map(within).max().unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_waits_until_the_others_leave_it_its_part() {
    let mut world = RegistryFixture::new(r#"{"per_second": 20}"#);
    world.insert_node("a", 3_600_000).await;
    let (first, _following) = world.spawn_registry("a");
    assert!(
        (95..=101).contains(&world.advance_time(5_000, &[&first]).await),
        "alone it has all of it"
    );
    for name in ["b", "c"] {
        world.insert_node(name, 3_600_000).await;
    }
    let ((second, _b), (third, _c)) = (world.spawn_registry("b"), world.spawn_registry("c"));
    world.advance_time(30_000, &[&first, &second, &third]).await;
    let all = world.advance_time(10_000, &[&first, &second, &third]).await;
    assert!(
        (190..=201).contains(&all),
        "together they reach as many: {all}"
    );
    assert!(world.peak_per_second() <= 21, "{}", world.peak_per_second());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_which_nobody_knows_does_not_use_up_the_limits() {
    let mut world = RegistryFixture::new(r#"{"per_domain": {"per_second": 20}}"#);
    let (house, _following) = world.spawn_registry("a");
    assert_eq!(
        world.advance_time(5_000, &[&house]).await,
        0,
        "its row is not stored yet"
    );
    world.insert_node("a", 8_000).await;
    assert!(world.advance_time(8_000, &[&house]).await > 150);
    world.advance_time(5_000, &[&house]).await;
    assert_eq!(
        world.advance_time(5_000, &[&house]).await,
        0,
        "the others take it for gone"
    );
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_limits_nobody_waits() {
    let world = RegistryFixture::new("{}");
    let (house, _following) = world.spawn_registry("a");
    let throttle = house
        .get_or_build_provider("mail", &world.spec)
        .unwrap()
        .throttle;
    assert!(
        throttle
            .try_acquire("ada@example.org", world.clock.now())
            .is_ok()
    );
}

#[test]
fn a_provider_that_is_in_use_is_not_made_again_however_many_others_come() {
    let house = ProviderRegistry::new(BTreeMap::new(), true, EnvironmentSecrets);
    let spec = |timeout_ms: usize| -> ProviderSpec {
        let folder = serde_json::json!({ "path": std::env::temp_dir(), "timeout_ms": timeout_ms });
        serde_json::from_value(serde_json::json!({ "folder": folder })).unwrap()
    };
    let used = house.get_or_build_provider("folder", &spec(25)).unwrap();
    for timeout_ms in 1_000..1_000 + 2 * INLINE_PROVIDERS_MAX {
        house
            .get_or_build_provider("folder", &spec(timeout_ms))
            .unwrap();
    }
    assert!(Arc::ptr_eq(
        &used.provider,
        &house
            .get_or_build_provider("folder", &spec(25))
            .unwrap()
            .provider
    ));
    assert!(house.lock_state().providers.len() <= INLINE_PROVIDERS_MAX + 1);
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
    let there = find(
        ProviderRegistry::new(BTreeMap::new(), true, EnvironmentSecrets).check_campaign(&campaign),
    );
    let address = if channel == "email" {
        "ada@example.org"
    } else {
        "+49301234567"
    };
    let data = serde_json::Map::from_iter([("name".to_owned(), "Ada".into())]);
    let mut checker = CampaignChecker::new(
        &campaign,
        Timestamp::from_micros(1_767_225_600_000_000).unwrap(),
    );
    checker.add_recipient(&AudienceRecipient {
        id: "1".to_owned(),
        address: address.to_owned(),
        data,
    });
    let here = find(check_inline_provider(&campaign, checker.sample_message()));
    (
        there.pass,
        here.pass,
        format!("{}; {}", there.message, here.message),
    )
}

const SMTP: &str = "{ smtp: { url: 'smtp://127.0.0.1:25', tls: none } }";

fn http_provider(body: &str) -> String {
    format!("{{ http: {{ url: 'http://127.0.0.1:80/', body: '{body}' }} }}")
}

#[test]
fn what_a_provider_could_send_to_nobody_is_found_before_it_is_deployed() {
    let letter = "{ from: shop@example.com, subject: 'Hi {{ name }}', text: 'Dear {{ name }}' }";
    let script = "{ script: 'Hello {{ name }}', payload: '[1]' }";
    for (channel, provider, template, words) in [
        (
            "voice",
            SMTP.to_owned(),
            letter,
            "`to` is not an address of mail",
        ),
        (
            "email",
            SMTP.to_owned(),
            "{ from: shop@example.com, text: '{{ name }}' }",
            "there is no part `subject`",
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
        let (there, here, said) = provider_fits(channel, &provider, template);
        assert!(
            !there && !here && said.matches(words).count() == 2,
            "{provider}: {said}"
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
        let (there, here, said) = provider_fits(channel, &provider, template);
        assert!(there && here, "{provider}: {said}");
    }
}

#[test]
fn what_is_filled_in_later_may_be_read_by_the_provider() {
    let raw = "{ payload: '[{{ name|length }}]' }";
    let (there, here, said) = provider_fits("voice", &http_provider("{{ payload|safe }}"), raw);
    assert!(there && here, "{said}");
}

#[test]
fn what_is_wrong_with_a_definition_names_its_kind_and_no_secret() {
    for (provider, words) in [
        (
            "{ http: { url: 'https://shop:hunter2@api.example.org/' } }",
            "provider http: there is no place for a password",
        ),
        (
            "{ smtp: { url: 'smtps://x.example', user: u, password: hunter2 } }",
            "`smtp.password` has to be a reference",
        ),
    ] {
        let found =
            check_inline_provider(&parse_campaign("voice", provider, "{ script: Hi }"), None);
        let [
            DeployPrerequisite {
                pass: false,
                message,
                ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert!(
            message.contains(words) && !message.contains("hunter2"),
            "{message}"
        );
    }
}
