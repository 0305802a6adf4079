//! The nodes behind the balancer: which of them may be asked, whose turn it is, and what became of what they were asked.
//!
//! Promises: while the same nodes are healthy, the numbers of requests they get differ by one at most; a node that is not healthy is
//! never picked. Refuses to know: how health is found out, and any byte of a request.

use crate::limits::NODES_MAX;
use parking_lot::RwLock;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a node is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// `host:port` of its S3 endpoint.
    pub endpoint: String,
    /// `host:port` of its admin endpoint, asked for its health; without it the S3 endpoint is.
    pub admin: Option<String>,
}

impl std::str::FromStr for NodeAddress {
    type Err = String;

    /// `[http://]HOST:PORT[,[http://]HOST:PORT]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(host_and_port);
        let endpoint = parts.next().unwrap_or_else(|| host_and_port(""))?;
        let admin = parts.next().transpose()?;
        match parts.next() {
            None => Ok(NodeAddress { endpoint, admin }),
            Some(_) => Err(format!("'{text}' names more than an endpoint and an admin address")),
        }
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    if text.starts_with("https://") {
        return Err(format!("'{text}': nodes are reached without TLS; the balancer is where TLS ends"));
    }
    let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let (host, port) = bare.rsplit_once(':').unwrap_or((bare, ""));
    let strange = |c: char| c.is_whitespace() || c == '/' || c == '@';
    if host.is_empty() || host.contains(strange) || port.parse::<u16>().is_err() {
        return Err(format!("'{text}' is not HOST:PORT"));
    }
    Ok(bare.to_owned())
}

/// A node, and its counts.
pub struct Node {
    /// How it is reached.
    pub names: NodeAddress,
    /// Its S3 endpoint as last resolved.
    pub address: RwLock<Option<SocketAddr>>,
    /// Requests that were sent to it.
    pub requests: AtomicU64,
    /// Times that no connection was to be had.
    pub refused: AtomicU64,
    /// Requests that were sent to it and got no complete answer, through no fault of the client.
    pub broken: AtomicU64,
}

/// A set of nodes by their indexes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NodeSet(u64);

impl NodeSet {
    /// Puts a node in.
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn nth(mut self, n: u32) -> Option<usize> {
        for _ in 0..n {
            self.0 &= self.0.wrapping_sub(1);
        }
        (self.0 != 0).then_some(self.0.trailing_zeros() as usize)
    }
}

/// All nodes.
pub struct Nodes {
    nodes: Vec<Node>,
    healthy: AtomicU64,
    turn: AtomicU64,
}

impl Nodes {
    /// None of them is healthy until it is said so. There must be between one and [`NODES_MAX`].
    pub fn new(names: Vec<NodeAddress>) -> Option<Self> {
        if names.is_empty() || names.len() > NODES_MAX {
            return None;
        }
        let node = |names| Node {
            names,
            address: RwLock::new(None),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        };
        let nodes = names.into_iter().map(node).collect();
        Some(Nodes { nodes, healthy: AtomicU64::new(0), turn: AtomicU64::new(0) })
    }

    /// All of them.
    pub fn all(&self) -> &[Node] {
        &self.nodes
    }

    /// The healthy node whose turn it is. `retry`: for another attempt at a request, which takes no turn, at a node not `tried`.
    pub fn pick(&self, retry: bool, tried: NodeSet) -> Option<usize> {
        let turn = if retry { self.turn.load(Ordering::Relaxed) } else { self.turn.fetch_add(1, Ordering::Relaxed) };
        let candidates = NodeSet(self.healthy.load(Ordering::Acquire) & !tried.0);
        let count = u64::from(candidates.0.count_ones());
        let n = turn.checked_rem(count)?;
        candidates.nth(n as u32)
    }

    /// Whether this one may be picked.
    pub fn is_healthy(&self, index: usize) -> bool {
        self.healthy.load(Ordering::Acquire) >> index & 1 == 1
    }

    /// Whether there is one to be picked.
    pub fn any_healthy(&self) -> bool {
        self.healthy.load(Ordering::Acquire) != 0
    }

    /// Says whether this one may be picked from now on; answers whether that is news.
    pub fn set_healthy(&self, index: usize, healthy: bool) -> bool {
        let bit = 1u64 << index;
        let before = match healthy {
            true => self.healthy.fetch_or(bit, Ordering::AcqRel),
            false => self.healthy.fetch_and(!bit, Ordering::AcqRel),
        };
        (before & bit != 0) != healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(count: usize, healthy: u64) -> Nodes {
        let names = |i| NodeAddress { endpoint: format!("127.0.0.1:{i}"), admin: None };
        let nodes = Nodes::new((0..count).map(names).collect()).expect("so many may be");
        (0..count).for_each(|i| {
            nodes.set_healthy(i, healthy >> i & 1 == 1);
        });
        nodes
    }

    proptest! {
        #[test]
        fn healthy_nodes_get_equal_shares_and_others_nothing(
            count in 1usize..=NODES_MAX, healthy in any::<u64>(), requests in 0usize..600
        ) {
            let nodes = nodes(count, healthy);
            let mut got = vec![0usize; count];
            for _ in 0..requests {
                match nodes.pick(false, NodeSet::default()) {
                    Some(i) => got[i] += 1,
                    None => prop_assert!((0..count).all(|i| !nodes.is_healthy(i))),
                }
            }
            let shares = || (0..count).filter(|i| nodes.is_healthy(*i)).map(|i| got[i]);
            prop_assert!(shares().max().unwrap_or(0) - shares().min().unwrap_or(0) <= 1);
            prop_assert!((0..count).all(|i| nodes.is_healthy(i) || got[i] == 0));
        }

        #[test]
        fn attempts_at_one_request_meet_each_healthy_node_once(count in 1usize..=NODES_MAX, healthy in any::<u64>()) {
            let nodes = nodes(count, healthy);
            let mut tried = NodeSet::default();
            let mut met = 0;
            while let Some(i) = nodes.pick(met > 0, tried) {
                prop_assert!(nodes.is_healthy(i) && tried.0 >> i & 1 == 0);
                tried.insert(i);
                met += 1;
            }
            prop_assert_eq!(met, (0..count).filter(|i| nodes.is_healthy(*i)).count());
        }
    }

    #[test]
    fn a_change_of_health_is_news_once() {
        let nodes = nodes(2, 0);
        assert!(nodes.set_healthy(1, true) && !nodes.set_healthy(1, true));
        assert!(nodes.any_healthy() && !nodes.is_healthy(0));
        assert!(nodes.set_healthy(1, false) && !nodes.set_healthy(1, false));
        assert!(!nodes.any_healthy());
    }

    #[test]
    fn nodes_are_named_as_people_write_them() {
        let read = |text: &str| text.parse::<NodeAddress>();
        let both = NodeAddress { endpoint: "127.0.0.1:9000".into(), admin: Some("n1.local:9001".into()) };
        assert_eq!(read("127.0.0.1:9000,n1.local:9001"), Ok(both.clone()));
        assert_eq!(read("http://127.0.0.1:9000/,http://n1.local:9001"), Ok(both));
        assert_eq!(read("[::1]:9000").map(|n| (n.endpoint, n.admin)), Ok(("[::1]:9000".into(), None)));
        for wrong in ["", "host", "host:x", ":9000", "a:1,b:2,c:3", "https://a:1", "a b:1", "a:1,", "u@a:1", "a/b:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(Nodes::new(Vec::new()).is_none());
    }
}
