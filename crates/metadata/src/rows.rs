//! The rows of the ordered schema as values. Their keys and bytes are in `format/`.
//!
//! All rows of one (bucket, key) lie in the shard of that key, so that everything about a key commits together.

use crate::strip::StripPlace;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::object::{ObjectMeta, Tag};
use types::{
    AttemptId, BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, ClusterId, ContentId, DiskId, ETag, GroupId,
    NodeId, ObjectKey, OwnerId, VersionId,
};

/// The key whose shard holds something: of a content, the key that wrote it, for ever.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Home {
    /// Bucket incarnation.
    pub bucket: BucketId,
    /// Key.
    pub key: ObjectKey,
}

/// Extents of one content that lie one after the other in one group: all full (`EXTENT_BYTES`) but the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Extent group.
    pub group: GroupId,
    /// Offset of the first frame in the group's file.
    pub offset: u64,
    /// Extents in the run, at least 1.
    pub extents: u32,
    /// Payload bytes of the last extent, 1 to `EXTENT_BYTES`.
    pub last_bytes: u32,
}

/// Where a group's replicas were when the bytes were written; a hint that saves a look-up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Location {
    /// Extent group.
    pub group: GroupId,
    /// Its disks then.
    pub disks: Vec<DiskId>,
}

/// The bytes of a content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ContentBytes {
    /// In the row itself. Never referred to by another key (copies of inline bytes are new contents).
    Inline(Bytes),
    /// In extent groups.
    Extents {
        /// In the order of the bytes.
        runs: Vec<Run>,
        /// Once per group.
        locations: Vec<Location>,
    },
}

/// Names a `body` row under its (bucket, key).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BodyId {
    /// Content id of what this key wrote, or owner id of a fast copy.
    pub id: AttemptId,
    /// 0, but for the parts of a multipart source that one fast copy took: they share its owner id, so each row carries the
    /// part's number.
    pub part: u32,
}

impl BodyId {
    /// The row of a content, or of a copy of one content.
    pub const fn whole(id: AttemptId) -> Self {
        BodyId { id, part: 0 }
    }
}

/// Family `body`: keyed (bucket, key, [`BodyId`]). For a content of this key the id is the content's; for a reference to a
/// content with another home the id is the owner's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BodyRow {
    /// Written by the commit or abandon entry of the content; exists if and only if the content is owned or condemned.
    Content {
        /// Bytes in all.
        size: u64,
        /// Where they are.
        bytes: ContentBytes,
    },
    /// A fast copy's repeated addresses; exists as long as the version or part that owns it.
    Reference(Reference),
}

/// A reference to (a range of) a content that lives at another home, or to a content of this key by another version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// The content's home.
    pub home: Home,
    /// The content.
    pub content: ContentId,
    /// First byte of the content that is meant.
    pub offset: u64,
    /// Bytes meant.
    pub size: u64,
    /// Bytes of the whole content.
    pub content_size: u64,
    /// The whole content's extents, repeated.
    pub runs: Vec<Run>,
    /// Once per group.
    pub locations: Vec<Location>,
}

/// Families `current` (live newest version of a key) and `versions` (older ones and delete markers). At most 4 KiB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionRow {
    /// Predecessor's + 1 within the key: Raft order.
    pub sequence: u64,
    /// The attempt that made it.
    pub attempt: AttemptId,
    /// Its version id is `null`.
    pub null: bool,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// `None`: a delete marker.
    pub object: Option<ObjectRow>,
}

impl VersionRow {
    /// The id that S3 shows.
    pub fn version_id(&self) -> VersionId {
        if self.null { VersionId::Null } else { VersionId::Id { sequence: self.sequence, attempt: self.attempt } }
    }
}

/// What LIST and HEAD need of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectRow {
    /// Bytes.
    pub size: u64,
    /// Entity tag.
    pub etag: ETag,
    /// Additional checksum.
    pub checksum: Option<Checksum>,
    /// Headers and user metadata.
    pub meta: ObjectMeta,
    /// Tags.
    pub tags: Vec<Tag>,
    /// Where its bytes are.
    pub data: DataRef,
}

/// How a version finds its bytes, always under its own (bucket, key).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DataRef {
    /// One `body` row with this id: the content this version wrote, or the owner id of a fast copy.
    Body(AttemptId),
    /// Manifest rows under this id.
    Manifest {
        /// Attempt of the Complete or copy that wrote the manifest.
        id: AttemptId,
        /// Number of parts.
        parts: u32,
    },
}

/// One part in a manifest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManifestPart {
    /// As uploaded.
    pub number: u32,
    /// Where it begins in the object.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// Content id of an uploaded part, owner id of a copied one. See [`ManifestPart::body_id`].
    pub body: AttemptId,
}

impl ManifestPart {
    /// The `body` row of this part, in the manifest of that id. A manifest that a copy wrote has the copy's owner id, as have
    /// its parts: then the number tells the rows apart.
    pub fn body_id(&self, manifest: AttemptId) -> BodyId {
        BodyId { id: self.body, part: if self.body == manifest { self.number } else { 0 } }
    }
}

/// Family `manifest`: keyed (bucket, key, manifest id, first part index of the chunk); 256 parts a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManifestRow {
    /// In the order of the bytes.
    pub parts: Vec<ManifestPart>,
}

/// Family `uploads`: keyed (bucket, key, upload id); only uploads in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UploadRow {
    /// Headers and user metadata of the object to be.
    pub meta: ObjectMeta,
    /// Tags of the object to be.
    pub tags: Vec<Tag>,
    /// Algorithm and kind of the checksums.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// Milliseconds since the epoch.
    pub initiated_ms: u64,
}

/// Family `completed`: keyed (bucket, key, upload id); what Complete answered, so that a repeated one gets the same. In a
/// family of its own, so that listing the uploads in progress never meets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompletedUpload {
    /// Digest of the list of (number, ETag) that was completed.
    pub parts_crc: u64,
    /// The attempt of the Complete, which its version carries.
    pub attempt: AttemptId,
    /// What it answered.
    pub outcome: crate::command::PutOutcome,
    /// When; kept until its version goes, or 7 days.
    pub completed_ms: u64,
}

/// Family `parts`: keyed (bucket, key, upload id, number).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartRow {
    /// The `body` row under this key: content id of an uploaded part, owner id of a copied one.
    pub body: AttemptId,
    /// Bytes.
    pub size: u64,
    /// MD5 of the part.
    pub md5: [u8; 16],
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
}

/// Family `owners`: keyed (home bucket, home key, content, owner). A row whose owner equals the content means that the
/// writer itself, which owns without a row, has let go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Where the version or part that owns is. Unused in the row that says the writer let go.
    pub destination: Home,
}

/// Family `condemned`: keyed (bucket, key, content or manifest id).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CondemnedRow {
    /// When it was condemned, in entry time.
    pub condemned_ms: u64,
    /// A content to reclaim, or a manifest to expand first.
    pub what: Condemned,
}

/// What is condemned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Condemned {
    /// A content of this key.
    Content,
    /// A manifest: until expanded its contents count as owned by it.
    Manifest {
        /// Number of parts.
        parts: u32,
    },
}

/// Family `outbox`: keyed (shard, sequence): work owed to another shard, delivered at least once, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OutboxRow {
    /// To the home's shard: this owner is gone.
    ReleaseOwner {
        /// Home of the content.
        home: Home,
        /// Content.
        content: ContentId,
        /// Owner that let go.
        owner: OwnerId,
    },
    /// To the group records: these extents are dead.
    Dead {
        /// Extents of a reclaimed content.
        runs: Vec<Run>,
    },
}

/// A bucket as apply must know it: one row in every shard that holds part of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BucketRow {
    /// Mutations that carry an older generation are refused ("refetch").
    pub generation: u64,
    /// Versioning.
    pub versioning: types::bucket::Versioning,
    /// Being deleted: new versions and uploads are refused.
    pub deleting: bool,
}

/// State of an extent group (rules R22, R23).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GroupState {
    /// Its writer appends.
    Open,
    /// Fenced; its length is being agreed.
    Sealing,
    /// No more appends.
    Sealed,
    /// All dead; its files may go.
    Dropped,
}

/// What one replica of a group is known to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplicaState {
    /// Listed when the group was opened; not asked yet.
    Open,
    /// All bytes below the sealed length.
    Whole,
    /// Only the first bytes.
    Holds(u64),
    /// Has not answered the fence.
    NotAnswered,
}

/// One replica of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replica {
    /// Where.
    pub disk: DiskId,
    /// Generation in the file's name and header.
    pub file_generation: u32,
    /// What it holds.
    pub state: ReplicaState,
}

/// The record of an extent group, in root: created before its files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupRecord {
    /// State.
    pub state: GroupState,
    /// Raised by every change of who may write or where the bytes are.
    pub generation: u32,
    /// Replicas wanted; the requirement while open.
    pub rf: u8,
    /// Replicas.
    pub replicas: Vec<Replica>,
    /// Final length once sealed.
    pub length: u64,
    /// The session that writes it.
    pub writer: (types::NodeId, u32),
    /// Every content in it is owned, condemned or dead.
    pub settled: bool,
    /// Contents the writer could not vouch for when it sealed; `None`: sealed by someone else, all must be asked for.
    pub account: Option<Vec<(Home, ContentId)>>,
    /// Buckets with bytes in the group, written when it is sealed.
    pub buckets: Vec<BucketId>,
    /// Dead frames, as sorted disjoint (offset, length); only grows.
    pub dead: Vec<(u64, u64)>,
    /// Entry time of the seal; 0 if it is not sealed, or was when this was not recorded yet.
    pub sealed_ms: u64,
    /// The strip it is a member of.
    pub strip: Option<StripPlace>,
}

/// The one row of the cluster map's head. Nodes and disks have rows of their own: `types::cluster`'s values as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterRow {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Raised by every change of the map.
    pub epoch: u64,
    /// What all nodes speak.
    pub version: u32,
    /// The newest node id; the next node gets the one after it.
    pub last_node: NodeId,
}

/// A join token, without its secret. A spent one is kept until long after it expired, so that a node whose answer was lost is
/// told its id again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenRow {
    /// Of the secret.
    pub secret_sha256: [u8; 32],
    /// In entry time.
    pub expires_ms: u64,
    /// Whom it admitted.
    pub used_by: Option<NodeId>,
}
