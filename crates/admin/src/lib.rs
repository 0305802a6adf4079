//! The admin port: health, metrics, and the admin API.
//!
//! Promises: health answers one word and needs no credentials; metrics are open to loopback only; everything else needs a
//! root signature (SigV4, service `ashlar`) over headers and body; no answer but "user create" ever holds a secret.
//! Refuses to know: how an audit or a scrub is done — it is told through [`Operations`].

mod api;
mod auth;
mod curator;
mod latency;
mod manage;
pub mod metrics;
pub mod operations;

pub use api::{AdminConfig, serve};
pub use operations::{CuratorAsk, Operations, Progress};
