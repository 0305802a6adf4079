//! Values of the records of extent groups. Version 2 says when a group was sealed and which strip it is in; version 1 is read as a group
//! of no strip that was sealed long ago.

use super::value::{RowValue, encode_postcard, whole};
use super::{FormatError, family};
use crate::rows::{GroupRecord, GroupState, Home, Replica};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use types::{BucketId, ContentId};

const VERSION: u8 = 2;

/// The fields of version 1, in their order.
#[derive(Serialize, Deserialize)]
struct Version1<'a> {
    state: GroupState,
    generation: u32,
    rf: u8,
    replicas: Cow<'a, [Replica]>,
    length: u64,
    writer: (types::NodeId, u32),
    settled: bool,
    account: Cow<'a, Option<Vec<(Home, ContentId)>>>,
    buckets: Cow<'a, [BucketId]>,
    dead: Cow<'a, [(u64, u64)]>,
}

impl<'a> From<&'a GroupRecord> for Version1<'a> {
    fn from(record: &'a GroupRecord) -> Self {
        Version1 {
            state: record.state,
            generation: record.generation,
            rf: record.rf,
            replicas: Cow::Borrowed(&record.replicas),
            length: record.length,
            writer: record.writer,
            settled: record.settled,
            account: Cow::Borrowed(&record.account),
            buckets: Cow::Borrowed(&record.buckets),
            dead: Cow::Borrowed(&record.dead),
        }
    }
}

impl From<Version1<'_>> for GroupRecord {
    fn from(old: Version1<'_>) -> Self {
        GroupRecord {
            state: old.state,
            generation: old.generation,
            rf: old.rf,
            replicas: old.replicas.into_owned(),
            length: old.length,
            writer: old.writer,
            settled: old.settled,
            account: old.account.into_owned(),
            buckets: old.buckets.into_owned(),
            dead: old.dead.into_owned(),
            sealed_ms: 0,
            strip: None,
        }
    }
}

impl RowValue for GroupRecord {
    fn encode(&self) -> Bytes {
        encode_postcard(VERSION, self).into()
    }

    fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
        match bytes.split_first() {
            Some((&VERSION, fields)) => whole(family::GROUPS, fields),
            Some((1, fields)) => Ok(whole::<Version1<'_>>(family::GROUPS, fields)?.into()),
            Some((version, _)) => Err(FormatError::new(family::GROUPS, format!("unknown version {version}"))),
            None => Err(FormatError::new(family::GROUPS, "empty")),
        }
    }
}

/// A record in an entry, as version 1: of a group that is being opened there is nothing else to say, and logs of before are read.
pub(crate) mod version_1 {
    use super::{GroupRecord, Version1};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(record: &GroupRecord, to: S) -> Result<S::Ok, S::Error> {
        Version1::from(record).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<GroupRecord, D::Error> {
        Ok(Version1::deserialize(from)?.into())
    }
}
