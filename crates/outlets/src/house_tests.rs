//! Nodes that come and go never reach more people together than the limits of a provider allow; and what a provider could
//! not send is found before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_campaign::{Campaign, Checker, Prerequisite};
use onward_dispatcher::Recipient;
use onward_journal::{Text, Timestamp};
use onward_providers::{Environment, ProviderSpec};
use onward_store::memory::Memory;
use onward_store::tables::Node;
use onward_store::{Clock as _, Commit, ManualClock, Policy, Store};
use tokio::task::JoinHandle;

use super::{House, INLINE_MAX, check_definition};

const TICK: Duration = Duration::from_millis(10);

struct World {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    spec: ProviderSpec,
    /// When somebody was reached.
    reached: Vec<i64>,
}

impl World {
    fn new(limits: &str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000).unwrap()));
        let store = Arc::new(Memory::new(Policy::default(), Arc::clone(&clock) as _));
        let spec = format!(r#"{{"smtp": {{"url": "smtp://127.0.0.1:25", "limits": {limits}}}}}"#);
        Self { clock, store, spec: serde_json::from_str(&spec).unwrap(), reached: Vec::new() }
    }

    /// A node that follows the others; they see it for so long.
    fn house(&self, name: &str) -> (Arc<House>, JoinHandle<()>) {
        let house = Arc::new(House::new(BTreeMap::new(), false, Environment));
        let (store, follows, name) = (Arc::clone(&self.store), Arc::clone(&house), Text::from(name));
        (house, tokio::spawn(async move { follows.follow(&*store, &name).await }))
    }

    async fn joins(&self, name: &str, seen_ms: u64) {
        let now = self.clock.now();
        let seen_until = now.plus_ms(seen_ms);
        let node = Node { node_id: name.into(), name: name.into(), address: None, started_at: now, seen_until };
        self.store.commit(Commit::new().insert(&node)).await.unwrap();
    }

    /// Time goes by, and all of these reach whom they can.
    async fn pass(&mut self, ms: u64, houses: &[&House]) -> usize {
        let before = self.reached.len();
        for _ in 0..Duration::from_millis(ms).as_millis() / TICK.as_millis() {
            self.clock.advance_ms(10);
            tokio::time::sleep(TICK).await;
            for house in houses {
                let throttle = house.made("mail", &self.spec).unwrap().throttle;
                while throttle.take("ada@example.org", self.clock.now()).is_ok() {
                    self.reached.push(self.clock.now().as_micros());
                }
            }
        }
        self.reached.len() - before
    }

    /// The most that were reached in any second.
    fn peak(&self) -> usize {
        let within = |first: &i64| self.reached.iter().filter(|at| (0..1_000_000).contains(&(*at - first))).count();
        self.reached.iter().map(within).max().unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_waits_until_the_others_leave_it_its_part() {
    let mut world = World::new(r#"{"per_second": 20}"#);
    world.joins("a", 3_600_000).await;
    let (first, _following) = world.house("a");
    assert!((95..=101).contains(&world.pass(5_000, &[&first]).await), "alone it has all of it");
    for name in ["b", "c"] {
        world.joins(name, 3_600_000).await;
    }
    let ((second, _b), (third, _c)) = (world.house("b"), world.house("c"));
    world.pass(30_000, &[&first, &second, &third]).await;
    let all = world.pass(10_000, &[&first, &second, &third]).await;
    assert!((190..=201).contains(&all), "together they reach as many: {all}");
    assert!(world.peak() <= 21, "{}", world.peak());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_which_nobody_knows_does_not_use_up_the_limits() {
    let mut world = World::new(r#"{"per_domain": {"per_second": 20}}"#);
    let (house, _following) = world.house("a");
    assert_eq!(world.pass(5_000, &[&house]).await, 0, "its row is not stored yet");
    world.joins("a", 8_000).await;
    assert!(world.pass(8_000, &[&house]).await > 150);
    world.pass(5_000, &[&house]).await;
    assert_eq!(world.pass(5_000, &[&house]).await, 0, "the others take it for gone");
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_limits_nobody_waits() {
    let world = World::new("{}");
    let (house, _following) = world.house("a");
    let throttle = house.made("mail", &world.spec).unwrap().throttle;
    assert!(throttle.take("ada@example.org", world.clock.now()).is_ok());
}

#[test]
fn a_provider_that_is_in_use_is_not_made_again_however_many_others_come() {
    let house = House::new(BTreeMap::new(), true, Environment);
    let spec = |timeout_ms: usize| -> ProviderSpec {
        let folder = serde_json::json!({ "path": std::env::temp_dir(), "timeout_ms": timeout_ms });
        serde_json::from_value(serde_json::json!({ "folder": folder })).unwrap()
    };
    let used = house.made("folder", &spec(25)).unwrap();
    for timeout_ms in 1_000..1_000 + 2 * INLINE_MAX {
        house.made("folder", &spec(timeout_ms)).unwrap();
    }
    assert!(Arc::ptr_eq(&used.provider, &house.made("folder", &spec(25)).unwrap().provider));
    assert!(house.state().made.len() <= INLINE_MAX + 1);
}

fn campaign(channel: &str, provider: &str, template: &str) -> Campaign {
    let text = format!(
        "campaign: c\nchannel: {channel}\nprovider: {provider}\ntemplate: {template}\naudience: {{ file: p.jsonl }}\n"
    );
    Campaign::parse(&text, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
}

/// Whether it fits, for the server that knows nobody, and where somebody is known.
fn fits(channel: &str, provider: &str, template: &str) -> (bool, bool, String) {
    let campaign = campaign(channel, provider, template);
    let find = |list: Vec<Prerequisite>| list.into_iter().find(|it| it.id == "provider.fits").unwrap();
    let there = find(House::new(BTreeMap::new(), true, Environment).check(&campaign));
    let address = if channel == "email" { "ada@example.org" } else { "+49301234567" };
    let data = serde_json::Map::from_iter([("name".to_owned(), "Ada".into())]);
    let mut checker = Checker::new(&campaign, Timestamp::from_micros(1_767_225_600_000_000).unwrap());
    checker.add(&Recipient { id: "1".to_owned(), address: address.to_owned(), data });
    let here = find(check_definition(&campaign, checker.sample()));
    (there.pass, here.pass, format!("{}; {}", there.message, here.message))
}

const SMTP: &str = "{ smtp: { url: 'smtp://127.0.0.1:25', tls: none } }";

fn http(body: &str) -> String {
    format!("{{ http: {{ url: 'http://127.0.0.1:80/', body: '{body}' }} }}")
}

#[test]
fn what_a_provider_could_send_to_nobody_is_found_before_it_is_deployed() {
    let letter = "{ from: shop@example.com, subject: 'Hi {{ name }}', text: 'Dear {{ name }}' }";
    let script = "{ script: 'Hello {{ name }}', payload: '[1]' }";
    for (channel, provider, template, words) in [
        ("voice", SMTP.to_owned(), letter, "`to` is not an address of mail"),
        ("email", SMTP.to_owned(), "{ from: shop@example.com, text: '{{ name }}' }", "there is no part `subject`"),
        ("voice", http(r#"{"to": {{ to }}, "say": {{ scirpt }}}"#), script, "`scirpt` is not defined"),
        ("voice", http(r#"{"to": "{{ to }}"}"#), script, "the body is not JSON"),
    ] {
        let (there, here, said) = fits(channel, &provider, template);
        assert!(!there && !here && said.matches(words).count() == 2, "{provider}: {said}");
    }
    for (channel, provider, template) in [
        ("email", SMTP.to_owned(), letter),
        ("voice", http(r#"{"to": {{ to }}, "say": {{ script }}}"#), script),
        ("voice", http(r#"{"to": {{ to }}, "say": {{ payload|safe }}}"#), script),
        ("voice", format!("{{ folder: {{ path: '{}' }} }}", std::env::temp_dir().display()), script),
    ] {
        let (there, here, said) = fits(channel, &provider, template);
        assert!(there && here, "{provider}: {said}");
    }
}

#[test]
fn what_is_filled_in_later_may_be_read_by_the_provider() {
    let raw = "{ payload: '[{{ name|length }}]' }";
    let (there, here, said) = fits("voice", &http("{{ payload|safe }}"), raw);
    assert!(there && here, "{said}");
}

#[test]
fn what_is_wrong_with_a_definition_names_its_kind_and_no_secret() {
    for (provider, words) in [
        (
            "{ http: { url: 'https://shop:hunter2@api.example.org/' } }",
            "provider http: there is no place for a password",
        ),
        ("{ smtp: { url: 'smtps://x.example', user: u, password: hunter2 } }", "`smtp.password` has to be a reference"),
    ] {
        let found = check_definition(&campaign("voice", provider, "{ script: Hi }"), None);
        let [Prerequisite { pass: false, message, .. }] = &found[..] else { panic!("{found:?}") };
        assert!(message.contains(words) && !message.contains("hunter2"), "{message}");
    }
}
