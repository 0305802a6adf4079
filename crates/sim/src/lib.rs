//! What judges a simulated cluster.
//!
//! Promises: pure functions of what clients saw. Refuses to know: how the cluster is built, time other than that of the history.

pub mod linear;
pub mod register;
