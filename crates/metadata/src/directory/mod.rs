//! Buckets, accounts and the cluster map in memory, as of the last applied entry of root.
//!
//! Promises: readers never wait; what an answered entry changed is seen by every read that begins after the answer, if
//! [`Directory::applied`] was called before it. Refuses to know: who asks and whether it may.

mod table;

use crate::command::{Command, Entry, Outcome, RootCommand};
use crate::read::{ReadError, root};
use crate::tree::Read;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use table::Table;
use types::account::Credential;
use types::bucket::BucketInfo;
use types::cluster::Map;
use types::{BucketId, BucketName};

/// Buckets by name and id, accounts by name and access key. Root's own credential is configuration and not in here.
#[derive(Default)]
pub struct Directory {
    buckets: Table<String, Arc<BucketInfo>>,
    names: Table<u64, BucketName>,
    users: Table<String, Arc<Credential>>,
    access_keys: Table<String, Arc<Credential>>,
    map: ArcSwapOption<Map>,
}

impl Directory {
    /// From the rows.
    pub fn load(read: &dyn Read) -> Result<Self, ReadError> {
        let directory = Directory::default();
        directory.fill(read)?;
        Ok(directory)
    }

    /// Takes up everything that the rows hold, at a start, when it is empty still.
    pub fn fill(&self, read: &dyn Read) -> Result<(), ReadError> {
        for bucket in root::buckets(read) {
            self.set_bucket(bucket?);
        }
        for user in root::users(read) {
            self.set_user(user?);
        }
        self.map.store(root::map(read)?.map(Arc::new));
        Ok(())
    }

    /// Takes up what the rows hold instead of what they held before: they were exchanged. Readers meanwhile find some of both.
    pub fn refill(&self, read: &dyn Read) -> Result<(), ReadError> {
        let (buckets, users) = (self.buckets(), self.users());
        for bucket in buckets {
            if root::bucket(read, bucket.id)?.is_none() {
                self.remove_bucket(bucket.id);
            }
        }
        for user in users {
            self.remove_user(&user.account.display_name);
        }
        self.fill(read)
    }

    /// Follows an entry that was applied. To be called in the order of root's log, before its proposer is answered; `read` sees the
    /// entry's rows, and may see later ones.
    pub fn applied(&self, entry: &Entry, outcome: &Outcome, read: &dyn Read) {
        let Command::Root(command) = &entry.command else { return };
        match (command, outcome) {
            (_, Outcome::Bucket(info)) => self.set_bucket(info.clone()),
            (RootCommand::DeleteBucket { bucket, .. }, Outcome::Done) => self.remove_bucket(*bucket),
            (RootCommand::CreateUser(user), Outcome::Done) => self.set_user(user.clone()),
            (RootCommand::DeleteUser(name), Outcome::Done) => self.remove_user(name),
            (RootCommand::Cluster(_), Outcome::Map(_)) => self.read_map(read),
            _ => {}
        }
    }

    /// The cluster map; `None` before its birth.
    pub fn map(&self) -> Option<Arc<Map>> {
        self.map.load_full()
    }

    /// The rows were written a moment ago; if they cannot be read the tree is failing and says so elsewhere, and the older map,
    /// which is known by its epoch, is the best there is.
    fn read_map(&self, read: &dyn Read) {
        match root::map(read) {
            Ok(map) => self.map.store(map.map(Arc::new)),
            Err(error) => tracing::error!(%error, "the cluster map cannot be read; an older one is used"),
        }
    }

    /// A bucket by name.
    pub fn bucket(&self, name: &BucketName) -> Option<Arc<BucketInfo>> {
        self.buckets.get(name.as_str())
    }

    /// A bucket by id.
    pub fn bucket_by_id(&self, id: BucketId) -> Option<Arc<BucketInfo>> {
        let name = self.names.get(&id.0)?;
        self.bucket(&name).filter(|b| b.id == id)
    }

    /// Buckets of an account by canonical id, sorted by name.
    pub fn buckets_of(&self, owner: &str) -> Vec<Arc<BucketInfo>> {
        self.buckets.collect(|b| b.owner == owner)
    }

    /// All buckets, sorted by name.
    pub fn buckets(&self) -> Vec<Arc<BucketInfo>> {
        self.buckets.collect(|_| true)
    }

    /// An account by access key.
    pub fn user_by_access_key(&self, access_key: &str) -> Option<Arc<Credential>> {
        self.access_keys.get(access_key)
    }

    /// An account by name.
    pub fn user(&self, name: &str) -> Option<Arc<Credential>> {
        self.users.get(name)
    }

    /// All accounts, sorted by name.
    pub fn users(&self) -> Vec<Arc<Credential>> {
        self.users.collect(|_| true)
    }

    fn set_bucket(&self, info: BucketInfo) {
        self.names.set(info.id.0, Some(info.name.clone()));
        self.buckets.set(info.name.as_str().to_owned(), Some(Arc::new(info)));
    }

    fn remove_bucket(&self, id: BucketId) {
        if let Some(name) = self.names.get(&id.0) {
            self.buckets.set(name.as_str().to_owned(), None);
            self.names.set(id.0, None);
        }
    }

    fn set_user(&self, user: Credential) {
        let user = Arc::new(user);
        self.access_keys.set(user.access_key.clone(), Some(Arc::clone(&user)));
        self.users.set(user.account.display_name.clone(), Some(user));
    }

    fn remove_user(&self, name: &str) {
        if let Some(user) = self.users.get(name) {
            self.access_keys.set(user.access_key.clone(), None);
            self.users.set(name.to_owned(), None);
        }
    }
}
