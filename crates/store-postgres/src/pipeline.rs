//! Statement pipelining: several statements are sent together and answered together, in one round
//! trip.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use deadpool_postgres::ClientWrapper;
use futures_util::future::{BoxFuture, maybe_done};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::value::SqlParam;

/// A statement and its parameters.
pub(crate) struct PipelineStatement<'a> {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
}

impl<'a> PipelineStatement<'a> {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        Self {
            sql: sql.into(),
            params: Vec::new(),
        }
    }

    pub(crate) fn with_param(mut self, param: impl ToSql + Sync + Send + 'a) -> Self {
        self.params.push(Box::new(param));
        self
    }

    pub(crate) fn with_params<P: ToSql + Sync + Send + 'a>(
        mut self,
        params: impl IntoIterator<Item = P>,
    ) -> Self {
        self.params.extend(
            params
                .into_iter()
                .map(|param| Box::new(param) as Box<dyn ToSql + Sync + Send + 'a>),
        );
        self
    }
}

impl PipelineStatement<'_> {
    /// Returns the parameters in the form that the client expects.
    pub(crate) fn param_refs(&self) -> Vec<SqlParam<'_>> {
        self.params
            .iter()
            .map(|param| &**param as SqlParam<'_>)
            .collect()
    }
}

/// The transaction boundary that a pipeline contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionBoundary {
    /// The pipeline begins a transaction.
    Begin,
    /// The pipeline commits the transaction.
    Commit,
}

/// Prepares the statements that are not prepared yet, sends all of them, and returns their rows or
/// the first error. In a transaction the first error is the cause: later statements only report
/// that the transaction has failed.
pub(crate) async fn send_pipeline(
    client: &ClientWrapper,
    steps: &[PipelineStatement<'_>],
    frame: TransactionBoundary,
) -> Result<Vec<Vec<Row>>, Error> {
    let mut statements = Vec::with_capacity(steps.len());
    for step in steps {
        statements.push(client.prepare_cached(&step.sql).await?);
    }
    let mut answers: Vec<BoxFuture<'_, Result<Vec<Row>, Error>>> =
        Vec::with_capacity(steps.len() + 1);
    let plain = |text: &'static str| -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move { client.batch_execute(text).await.map(|()| Vec::new()) })
    };
    if frame == TransactionBoundary::Begin {
        answers.push(plain("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"));
    }
    for (step, statement) in steps.iter().zip(&statements) {
        let params = step.param_refs();
        answers.push(Box::pin(
            async move { client.query(statement, &params).await },
        ));
    }
    if frame == TransactionBoundary::Commit {
        answers.push(plain("COMMIT"));
    }
    let skipped = usize::from(frame == TransactionBoundary::Begin);
    let rows = join_in_order(answers)
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().skip(skipped).take(steps.len()).collect())
}

/// Waits for all answers. A statement is sent when its future is first polled, so the futures are
/// polled in order.
async fn join_in_order<T>(answers: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut answers: Vec<_> = answers.into_iter().map(maybe_done).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for answer in &mut answers {
            waiting |= Pin::new(answer).poll(context).is_pending();
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    answers
        .iter_mut()
        .filter_map(|answer| Pin::new(answer).take_output())
        .collect()
}
