//! How far the shutdown of a server has progressed; long polls end early when it stops.

/// Lifecycle of a server, from serving to stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerStage {
    /// Accepts and answers requests.
    Serving,
    /// Still answers requests, while `/readyz` reports that it is about to stop.
    Draining,
    /// Finishes requests in flight and accepts no new ones.
    Stopping,
}
