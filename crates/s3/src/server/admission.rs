//! How many connections there may be, in all and from one address.

use super::ServerConfig;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Default)]
struct Counts {
    all: usize,
    per_address: BTreeMap<IpAddr, usize>,
}

/// Counts the connections of a listener.
#[derive(Clone, Default)]
pub struct Admission(Arc<Mutex<Counts>>);

impl Admission {
    /// A slot for one more connection, `None` if there are too many.
    pub fn admit(&self, address: IpAddr, config: &ServerConfig) -> Option<Slot> {
        let mut counts = self.0.lock();
        let here = counts.per_address.get(&address).copied().unwrap_or(0);
        if counts.all >= config.max_connections || here >= config.max_connections_per_address {
            return None;
        }
        counts.all += 1;
        counts.per_address.insert(address, here + 1);
        Some(Slot { counts: Arc::clone(&self.0), address })
    }
}

/// Held while a connection lives.
pub struct Slot {
    counts: Arc<Mutex<Counts>>,
    address: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(n) = counts.per_address.get_mut(&self.address) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                counts.per_address.remove(&self.address);
            }
        }
    }
}
