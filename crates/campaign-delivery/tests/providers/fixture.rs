//! The fixture of these tests: a store, a provider built from its document, and a dispatcher that
//! runs until all items of a campaign run are settled or in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Scope;
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DeliveryChannel, RenderedMessage,
};
use onward_campaign_delivery::{ProviderSpec, RateLimiter, SecretSource};
use onward_campaign_dispatch::{
    CampaignDelivery, CampaignDeployment, Dispatcher, EntropySource, Options, RepeatSendPolicy,
    ScopedCampaigns,
};
use onward_campaign_file::CampaignRetries;
use onward_store::memory::MemoryStore;
use onward_store::tables::OutboxItemRow;
use onward_store::{RecordReader as _, Store, StorePolicy, SystemClock, TableScan};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// No secrets.
pub(crate) struct NoSecrets;

impl SecretSource for NoSecrets {
    fn lookup_secret(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Composes a letter with all parts that the providers use.
struct LetterComposer;

impl ComposeMessage for LetterComposer {
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        let parts = [
            ("from", "Shop <shop@example.com>".to_owned()),
            ("subject", format!("Grüße, {}", recipient.id)),
            ("text", format!("Hello {}", recipient.id)),
            ("html", format!("<p>Hello {}</p>", recipient.id)),
            (
                "unsubscribe",
                format!("https://example.com/unsubscribe?id={}", recipient.id),
            ),
        ];
        Ok(RenderedMessage {
            parts: parts.map(|(name, text)| (name.to_owned(), text)).to_vec(),
        })
    }
}

pub(crate) struct ProviderFixture {
    store: Arc<dyn Store>,
    delivery: Arc<CampaignDelivery>,
    campaigns: ScopedCampaigns,
}

impl ProviderFixture {
    pub(crate) fn new(spec: Value) -> Self {
        Self::with_retries(spec, CampaignRetries::default())
    }

    /// Creates a fixture with these limits of sends and attempts; the backoff is always short.
    pub(crate) fn with_retries(spec: Value, retries: CampaignRetries) -> Self {
        let spec: ProviderSpec = serde_json::from_value(spec).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::new(SystemClock),
        ));
        let retries = CampaignRetries {
            initial_backoff_ms: 10,
            max_backoff_ms: 50,
            ..retries
        };
        let delivery = CampaignDelivery {
            provider: spec.build_provider("real", &NoSecrets).unwrap(),
            composer: Arc::new(LetterComposer),
            gate: Arc::new(RateLimiter::new(spec.rate_limits())),
            policy: spec.dispatch_policy(&retries),
            timeout: spec.send_timeout(),
        };
        let campaigns = ScopedCampaigns::new(Arc::clone(&store), scope());
        Self {
            store,
            delivery: Arc::new(delivery),
            campaigns,
        }
    }

    /// Sends to these recipients until no item is queued, other than in doubt. Returns the items by
    /// recipient.
    pub(crate) async fn send(&self, recipients: &[(&str, &str)]) -> BTreeMap<String, String> {
        self.send_until(recipients, |status| !status.starts_with("queued"))
            .await
    }

    /// Sends to these recipients until no item is queued or in doubt.
    pub(crate) async fn send_until_sent(
        &self,
        recipients: &[(&str, &str)],
    ) -> BTreeMap<String, String> {
        self.send_until(recipients, |status| {
            !status.starts_with("queued") && status != "in doubt"
        })
        .await
    }

    async fn send_until(
        &self,
        recipients: &[(&str, &str)],
        is_settled: fn(&str) -> bool,
    ) -> BTreeMap<String, String> {
        let entropy = EntropySource::default();
        let mut audience_writer = self.campaigns.begin_audience(10, &entropy);
        for (id, address) in recipients {
            let (id, address) = ((*id).to_owned(), (*address).to_owned());
            audience_writer
                .add_recipient(AudienceRecipient {
                    id,
                    address,
                    data: Map::new(),
                })
                .await
                .unwrap();
        }
        let audience = audience_writer.finish().await.unwrap();
        let run = self
            .campaigns
            .deploy_campaign(&deployment(), &audience, &entropy)
            .await
            .unwrap()
            .run_id;
        let options = Options {
            concurrency: 2,
            poll_interval: Duration::from_millis(10),
            ..Options::default()
        };
        let dispatcher = Dispatcher::new(
            Arc::clone(&self.store),
            Arc::new(Arc::clone(&self.delivery)),
            options,
        );
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(dispatcher.run(stopped));
        let settled = async {
            loop {
                let has_ended = self
                    .campaigns
                    .read_run(&run)
                    .await
                    .unwrap()
                    .ended_at
                    .is_some();
                let items = self.items_by_recipient().await;
                let are_settled = items.len() == recipients.len()
                    && items.values().all(|status| is_settled(status));
                if has_ended || are_settled {
                    return items;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let items = tokio::time::timeout(Duration::from_secs(30), settled).await;
        stop.send_replace(true);
        working.await.unwrap().unwrap();
        items.unwrap()
    }

    /// The status and the reason of each item, by recipient.
    async fn items_by_recipient(&self) -> BTreeMap<String, String> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        let status = |row: &OutboxItemRow| match &row.reason {
            Some(reason) => format!("{} {reason}", row.status),
            None if row.in_doubt_since.is_some() => "in doubt".to_owned(),
            None => row.status.to_string(),
        };
        rows.iter()
            .map(|(row, _)| (row.recipient_id.to_string(), status(row)))
            .collect()
    }

    pub(crate) async fn item_rows(&self) -> Vec<OutboxItemRow> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }
}

fn scope() -> Scope {
    Scope {
        tenant: "acme".parse().unwrap(),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
    }
}

fn deployment() -> CampaignDeployment {
    CampaignDeployment {
        campaign_id: "spring".into(),
        channel: DeliveryChannel::Email,
        asset: "spring".into(),
        document: "{}".into(),
        scheduled_for: None,
        idempotency_key: None,
        already_reached: RepeatSendPolicy::Refuse,
        deployed_by: "ada".to_owned(),
    }
}

pub(crate) fn statuses(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(id, status)| ((*id).to_owned(), (*status).to_owned()))
        .collect()
}
