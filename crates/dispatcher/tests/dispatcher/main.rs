//! Campaigns on a store in memory, in virtual time.

mod deploys;
mod sends;
mod world;
