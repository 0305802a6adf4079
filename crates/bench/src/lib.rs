//! A client that checks every byte: load generator, benchmark table, crash tester.
//!
//! Promises: no figure is reported for a body that was not compared byte by byte with what was stored; a run ends when
//! its limit is reached, whatever the server does. Works against any S3 endpoint with path-style addressing.
//! Refuses to know: how the server is built; it speaks S3, reads `/proc` and runs the `ashlar` command, nothing else.
//!
//! Reading order: [`config`], [`load`] (the closed loop), [`client`] (one S3 connection), [`content`] (what bytes an
//! object has), [`report`]; then [`table`], [`floor`] and [`hyper_floor`]; then [`crash`] (one server), [`chaos`] (a cluster), and [`probe`]
//! (one program for each promise about speed). The command line is in [`cli`].

pub mod chaos;
pub mod cli;
pub mod client;
mod clock;
pub mod config;
pub mod content;
pub mod crash;
mod error;
pub mod floor;
pub mod histogram;
pub mod hyper_floor;
pub mod limits;
pub mod load;
pub mod machine;
pub mod probe;
pub mod report;
pub mod table;

pub use config::{Config, Operation};
pub use error::BenchError;
pub use load::run;
pub use report::Report;
