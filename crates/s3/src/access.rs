//! Who may do what.
//!
//! Promises: default deny. The owner of a bucket may do all with it, and root with every bucket; anyone else only what the
//! bucket's policy allows, and a Deny of the policy holds for the owner too, except for the policy itself (so that nobody
//! locks himself out). A policy that cannot be read denies. Refuses to know: requests; which actions an operation needs is
//! written in the operation.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::policy::{self, Action, Policy, Verdict};
use crate::request::Identity;
use crate::xml;
use object_controller::api::BucketInfo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{BucketId, ObjectKey};

/// Parsed policies by bucket incarnation and generation.
#[derive(Default)]
pub struct Policies {
    parsed: Mutex<BTreeMap<BucketId, (u64, Arc<Policy>)>>,
}

/// How a bucket's policy stands.
enum Standing {
    None,
    Read(Arc<Policy>),
    Unreadable,
}

impl Policies {
    fn of(&self, bucket: &BucketInfo) -> Standing {
        let Some(text) = &bucket.configs.policy else { return Standing::None };
        if let Some((generation, policy)) = self.parsed.lock().get(&bucket.id)
            && *generation == bucket.generation
        {
            return Standing::Read(Arc::clone(policy));
        }
        // Accounts were checked when the policy was put; one that is gone since then simply never asks.
        let Ok(policy) = policy::parse(text.as_bytes(), bucket.name.as_str(), &|_| true) else {
            tracing::error!(bucket = %bucket.name, "a stored bucket policy cannot be read");
            return Standing::Unreadable;
        };
        let policy = Arc::new(policy);
        let mut parsed = self.parsed.lock();
        if parsed.len() >= limits::POLICIES_REMEMBERED_MAX {
            parsed.clear();
        }
        parsed.insert(bucket.id, (bucket.generation, Arc::clone(&policy)));
        Standing::Read(policy)
    }
}

/// The four switches of a public access block. ACLs are disabled here, so the two about ACLs hold by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PublicAccessBlock {
    pub block_public_acls: bool,
    pub ignore_public_acls: bool,
    pub block_public_policy: bool,
    pub restrict_public_buckets: bool,
}

impl PublicAccessBlock {
    /// Reads the document; strict.
    pub fn parse(document: &[u8]) -> S3Result<Self> {
        let root = xml::parse(document, "PublicAccessBlockConfiguration", 4 << 10)?;
        let mut block = PublicAccessBlock::default();
        for child in &root.children {
            let value = match child.text.trim() {
                "true" | "TRUE" => true,
                "false" | "FALSE" => false,
                _ => return Err(S3Error::new(S3Code::MalformedXML)),
            };
            match child.name.as_str() {
                "BlockPublicAcls" => block.block_public_acls = value,
                "IgnorePublicAcls" => block.ignore_public_acls = value,
                "BlockPublicPolicy" => block.block_public_policy = value,
                "RestrictPublicBuckets" => block.restrict_public_buckets = value,
                _ => return Err(S3Error::new(S3Code::MalformedXML)),
            }
        }
        Ok(block)
    }

    /// The bucket's, or none.
    pub fn of(bucket: &BucketInfo) -> Self {
        // What was stored had been read before; if it cannot be read any more, everything is blocked.
        let all = PublicAccessBlock {
            block_public_acls: true,
            ignore_public_acls: true,
            block_public_policy: true,
            restrict_public_buckets: true,
        };
        let text = bucket.configs.public_access_block.as_ref();
        text.map_or_else(PublicAccessBlock::default, |t| Self::parse(t.as_bytes()).unwrap_or(all))
    }
}

/// What one identity may do with one bucket.
pub struct Access<'a> {
    identity: &'a Identity,
    bucket: &'a BucketInfo,
    policy: Standing,
}

impl<'a> Access<'a> {
    /// Looks the policy up.
    pub fn new(policies: &Policies, identity: &'a Identity, bucket: &'a BucketInfo) -> Self {
        Access { identity, bucket, policy: policies.of(bucket) }
    }

    fn is_owner(&self) -> bool {
        self.identity.canonical_id() == Some(self.bucket.owner.as_str())
    }

    /// Whether `action` is allowed on the bucket, or on `key` in it.
    pub fn allows(&self, action: Action, key: Option<&str>) -> bool {
        if self.identity.is_root() {
            return true;
        }
        let verdict = match &self.policy {
            Standing::None => Verdict::Silent,
            Standing::Unreadable => Verdict::Denied,
            Standing::Read(policy) => {
                let bucket = self.bucket.name.as_str();
                match key {
                    None => policy.judge(self.identity.canonical_id(), action, bucket),
                    Some(key) => policy.judge(self.identity.canonical_id(), action, &format!("{bucket}/{key}")),
                }
            }
        };
        let of_policy =
            matches!(action, Action::GetBucketPolicy | Action::PutBucketPolicy | Action::DeleteBucketPolicy);
        match verdict {
            Verdict::Denied => self.is_owner() && of_policy,
            Verdict::Silent => self.is_owner(),
            Verdict::Allowed => self.is_owner() || !self.is_restricted(),
        }
    }

    /// The bucket is public and its public access block keeps everyone but its owner out.
    fn is_restricted(&self) -> bool {
        let public = matches!(&self.policy, Standing::Read(policy) if policy.is_public());
        public && PublicAccessBlock::of(self.bucket).restrict_public_buckets
    }

    /// The policy allows something to anyone.
    pub fn is_public(&self) -> bool {
        matches!(&self.policy, Standing::Read(policy) if policy.is_public())
    }

    /// `AccessDenied` unless `action` is allowed on the bucket.
    pub fn require(&self, action: Action) -> S3Result<()> {
        if self.allows(action, None) { Ok(()) } else { Err(S3Error::new(S3Code::AccessDenied)) }
    }

    /// `AccessDenied` unless `action` is allowed on `key`.
    pub fn require_key(&self, action: Action, key: &ObjectKey) -> S3Result<()> {
        if self.allows(action, Some(key.as_str())) { Ok(()) } else { Err(S3Error::new(S3Code::AccessDenied)) }
    }

    /// Whoever may not list is not told that a key does not exist.
    pub fn hide_absence(&self, error: S3Error) -> S3Error {
        let tells = matches!(error.code, S3Code::NoSuchKey | S3Code::NoSuchVersion);
        if tells && !self.allows(Action::ListBucket, None) { S3Error::new(S3Code::AccessDenied) } else { error }
    }
}
