//! A store, a provider as its document says, and a dispatcher that works until a campaign run is
//! over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{
    AudienceRecipient, ComposeMessage, DeliveryChannel, ExponentialBackoff, RenderedMessage,
};
use onward_campaign_delivery::{ProviderSpec, RateLimiter, SecretSource};
use onward_campaign_dispatch::{
    CampaignDelivery, CampaignDeployment, CampaignScope, Dispatcher, EntropySource, Options,
    RepeatSendPolicy, ScopedCampaigns,
};
use onward_store::memory::MemoryStore;
use onward_store::tables::OutboxItemRow;
use onward_store::{RecordReader as _, Store, StorePolicy, SystemClock, TableScan};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// No secrets.
pub(crate) struct Nothing;

impl SecretSource for Nothing {
    fn lookup_secret(&self, _name: &str) -> Option<String> {
        None
    }
}

struct Letter;

impl ComposeMessage for Letter {
    fn compose_message(&self, recipient: &AudienceRecipient) -> Result<RenderedMessage, String> {
        let parts = [
            ("from", "Shop <shop@example.com>".to_owned()),
            ("subject", format!("Grüße, {}", recipient.id)),
            ("text", format!("Hello {}", recipient.id)),
            ("html", format!("<p>Hello {}</p>", recipient.id)),
            (
                "unsubscribe",
                format!("https://example.com/leave?who={}", recipient.id),
            ),
        ];
        Ok(RenderedMessage {
            parts: parts.map(|(name, text)| (name.to_owned(), text)).to_vec(),
        })
    }
}

pub(crate) struct World {
    store: Arc<dyn Store>,
    outlet: Arc<CampaignDelivery>,
    campaigns: ScopedCampaigns,
}

impl World {
    pub(crate) fn new(spec: Value) -> Self {
        let spec: ProviderSpec = serde_json::from_value(spec).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(
            StorePolicy::default(),
            Arc::new(SystemClock),
        ));
        let mut terms = spec.dispatch_policy();
        terms.backoff = ExponentialBackoff {
            initial_ms: 10,
            max_ms: 50,
        };
        let outlet = CampaignDelivery {
            provider: spec.build_provider("real", &Nothing).unwrap(),
            composer: Arc::new(Letter),
            gate: Arc::new(RateLimiter::new(spec.rate_limits())),
            policy: terms,
            timeout: spec.send_timeout(),
        };
        let campaigns = ScopedCampaigns::new(Arc::clone(&store), scope());
        Self {
            store,
            outlet: Arc::new(outlet),
            campaigns,
        }
    }

    /// Sends to these, until that is over or waits for somebody; and tells of each what became of
    /// it.
    pub(crate) async fn send(&self, recipients: &[(&str, &str)]) -> BTreeMap<String, String> {
        self.send_until(recipients, |status| !status.starts_with("queued"))
            .await
    }

    /// Sends to these until nothing is in doubt any more.
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
        is_over: fn(&str) -> bool,
    ) -> BTreeMap<String, String> {
        let entropy = EntropySource::default();
        let mut gathering = self.campaigns.begin_audience(10, &entropy);
        for (id, address) in recipients {
            let (id, address) = ((*id).to_owned(), (*address).to_owned());
            gathering
                .add_recipient(AudienceRecipient {
                    id,
                    address,
                    data: Map::new(),
                })
                .await
                .unwrap();
        }
        let audience = gathering.finish().await.unwrap();
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
            Arc::new(Arc::clone(&self.outlet)),
            options,
        );
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(dispatcher.run(stopped));
        let over = async {
            loop {
                let has_ended = self
                    .campaigns
                    .read_run(&run)
                    .await
                    .unwrap()
                    .ended_at
                    .is_some();
                let items = self.items().await;
                let are_settled =
                    items.len() == recipients.len() && items.values().all(|status| is_over(status));
                if has_ended || are_settled {
                    return items;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let items = tokio::time::timeout(Duration::from_secs(30), over).await;
        stop.send_replace(true);
        working.await.unwrap().unwrap();
        items.unwrap()
    }

    /// The items by recipient: status and reason.
    async fn items(&self) -> BTreeMap<String, String> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        let status = |row: &OutboxItemRow| match &row.reason {
            Some(reason) => format!("{} {reason}", row.status),
            None if row.doubt_since.is_some() => "in doubt".to_owned(),
            None => row.status.to_string(),
        };
        rows.iter()
            .map(|(row, _)| (row.recipient_id.to_string(), status(row)))
            .collect()
    }

    pub(crate) async fn rows(&self) -> Vec<OutboxItemRow> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }
}

fn scope() -> CampaignScope {
    CampaignScope {
        tenant: "acme".into(),
        workspace: "shop".into(),
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

pub(crate) fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(id, status)| ((*id).to_owned(), (*status).to_owned()))
        .collect()
}
