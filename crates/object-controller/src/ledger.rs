//! What one upload has written so far, shared by the future that writes and the guard that abandons.
//!
//! Promises: an address is here before any disk hears of it. Refuses to know: whether the bytes arrived.

use crate::groups::OpenGroup;
use crate::runs::{self, Address};
use metadata::rows::{Home, Run};
use parking_lot::Mutex;
use std::sync::Arc;
use types::ContentId;

/// The addresses allotted to one content and the groups they are in.
pub(crate) struct Ledger {
    home: Home,
    content: ContentId,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    addresses: Vec<Address>,
    groups: Vec<Arc<OpenGroup>>,
}

impl Ledger {
    /// Of a content that has written nothing.
    pub(crate) fn new(home: Home, content: ContentId) -> Arc<Ledger> {
        Arc::new(Ledger { home, content, written: Mutex::default() })
    }

    /// The key that writes.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The content that is written.
    pub(crate) fn content(&self) -> ContentId {
        self.content
    }

    /// An address was allotted in `group`.
    pub(crate) fn note(&self, address: Address, group: &Arc<OpenGroup>) {
        let mut written = self.written.lock();
        written.addresses.push(address);
        if !written.groups.iter().any(|g| g.id() == group.id()) {
            written.groups.push(group.clone());
        }
    }

    /// Whether any disk may have bytes of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.lock().addresses.is_empty()
    }

    /// Every address that was allotted, also those that failed.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut addresses = self.written.lock().addresses.clone();
        addresses.sort_by_key(|a| (a.group, a.offset));
        runs::gather(addresses)
    }

    /// The content is committed or condemned: its groups can vouch for it. Answers those that may be sealed now.
    pub(crate) fn resolved(&self) -> Vec<Arc<OpenGroup>> {
        let groups = std::mem::take(&mut self.written.lock().groups);
        groups.into_iter().filter(|group| group.resolved(self.content)).collect()
    }
}
