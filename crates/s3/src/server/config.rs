//! What an operator may set of the server.

use std::time::Duration;

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Domains below which the first labels of the host name the bucket.
    pub domains: Vec<String>,
    /// Answered as `x-amz-id-2`: which node this was.
    pub host_id: String,
    /// Requests worked on at once; more are answered 503 SlowDown.
    pub max_requests: usize,
    /// Bytes that all uploads together hold back to have their MD5 computed at once.
    pub md5_backlog_bytes: usize,
    /// Connections at once; more are answered 503 and closed.
    pub max_connections: usize,
    /// Connections of one address at once.
    pub max_connections_per_address: usize,
    /// Time for the requests in flight to end at shutdown.
    pub shutdown_deadline: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            domains: Vec::new(),
            host_id: "ashlar".to_owned(),
            max_requests: 1024,
            md5_backlog_bytes: 16 << 20,
            max_connections: 10_000,
            max_connections_per_address: 5_000,
            shutdown_deadline: Duration::from_secs(30),
        }
    }
}
