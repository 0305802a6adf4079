//! What may be proposed to a shard, and what apply answers.
//!
//! An entry happens once: apply keeps the outcome of every attempt it decided (protocols.md 8).

use crate::rows::{ContentBytes, GroupRecord, Home, ManifestPart, Reference, Replica, Run};
use crate::strip::NewMember;
use serde::{Deserialize, Serialize};
use types::account::Credential;
use types::bucket::{BucketChange, BucketInfo};
use types::cluster::ClusterRefusal;
use types::cluster::command::{ClusterCommand, MapChange};
use types::object::{DeleteConditions, ObjectMeta, PutConditions, Tag};
use types::{
    AttemptId, BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, ContentId, DiskId, ETag, GroupId, ObjectKey,
    OwnerId, StripId, VersionId,
};

/// One Raft entry: who, until when, what. The leader stamps the time when it appends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Kept over retries.
    pub attempt: AttemptId,
    /// Refused if the entry's effective time is later.
    pub deadline_ms: u64,
    /// Stamped by the leader; apply uses max(stamp, last stamp of the shard).
    pub stamp_ms: u64,
    /// What.
    pub command: Command,
}

/// What an entry asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// About one key; routed by (bucket, key).
    Key(KeyCommand),
    /// About several homes of one shard.
    Shard(ShardCommand),
    /// About the cluster: buckets, accounts, groups, sessions.
    Root(RootCommand),
}

/// A mutation of one key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeyCommand {
    /// Bucket incarnation.
    pub bucket: BucketId,
    /// Generation of the bucket that the gateway used; an older one is answered `Refetch`.
    pub generation: u64,
    /// Key.
    pub key: ObjectKey,
    /// What.
    pub op: KeyOp,
}

/// A new version but for its bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NewVersion {
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
}

/// What happens to one key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum KeyOp {
    /// Commit of an upload. The attempt id is the content id and its first owner.
    Put {
        /// The version.
        object: NewVersion,
        /// Its bytes, durable before this is proposed.
        bytes: ContentBytes,
        /// Judged in apply. A refusal condemns the content in the same entry (unless inline).
        conditions: PutConditions,
    },
    /// The other end of an upload: the content named by the attempt id is created condemned.
    Abandon {
        /// Extents that were written.
        runs: Vec<Run>,
    },
    /// DeleteObject.
    Delete {
        /// `None`: as the bucket's versioning says.
        version: Option<VersionId>,
        /// Judged in apply.
        conditions: DeleteConditions,
    },
    /// Replaces the tags of a version.
    PutTags {
        /// `None`: current.
        version: Option<VersionId>,
        /// Empty: removes.
        tags: Vec<Tag>,
    },
    /// Begins an upload; its id is the attempt id.
    CreateUpload {
        /// Headers and user metadata of the object to be.
        meta: ObjectMeta,
        /// Tags of the object to be.
        tags: Vec<Tag>,
        /// Algorithm and kind.
        checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    },
    /// Commit of a part. The attempt id is the content id. Replaces (and condemns) a former part of that number.
    PutPart {
        /// Upload.
        upload: AttemptId,
        /// 1 to 10,000.
        number: u32,
        /// Bytes.
        size: u64,
        /// MD5.
        md5: [u8; 16],
        /// Checksum.
        checksum: Option<Checksum>,
        /// Durable before this is proposed. `NoSuchUpload` condemns it in the same entry.
        bytes: PartBytes,
    },
    /// Ends an upload and condemns its parts. Refused with `NoSuchUpload` if unknown or completed.
    AbortUpload {
        /// Upload.
        upload: AttemptId,
    },
    /// Makes the version. Decides everything from the part rows.
    CompleteUpload {
        /// Upload.
        upload: AttemptId,
        /// Numbers ascending, with ETag text and the checksum digest the client repeated.
        parts: Vec<ListedPart>,
        /// Judged on the current version.
        conditions: PutConditions,
        /// Whole-object checksum as the client knows it.
        checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
        /// Whole size as the client knows it.
        size: Option<u64>,
    },
    /// Commit of a fast copy. The attempt id is the owner id of every content it refers to. For contents whose home is in this
    /// very shard the owner rows are added here (refused with `SourceGone` if one is condemned or gone); for others they must
    /// have been added by `ShardCommand::AddOwners` before.
    Copy {
        /// The version.
        object: NewVersion,
        /// What it refers to.
        data: CopyData,
        /// Judged on the destination's current version.
        conditions: PutConditions,
    },
}

/// A part as Complete lists it: number, ETag text, and the checksum digest if the client repeated it.
pub type ListedPart = (u32, String, Option<(ChecksumAlgorithm, Vec<u8>)>);

/// Bytes of a part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum PartBytes {
    /// Uploaded.
    New(ContentBytes),
    /// Copied by reference.
    Copied(Reference),
}

/// What a fast copy refers to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CopyData {
    /// One content.
    One(Reference),
    /// The parts of a multipart source, in order. `ManifestPart::body` is filled by apply.
    Parts(Vec<(ManifestPart, Reference)>),
}

/// About several homes of one shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardCommand {
    /// Step 1 of a copy whose sources are homed here: adds the attempt id as owner of each; all or none (`SourceGone`).
    AddOwners {
        /// Home and content.
        contents: Vec<(Home, ContentId)>,
        /// Where the version or part will be.
        destination: Home,
    },
    /// These owners let go. Idempotent; a content without owners is condemned.
    ReleaseOwners {
        /// Home, content, owner.
        owners: Vec<(Home, ContentId, OwnerId)>,
    },
    /// Takes away what the next 256 parts of a condemned manifest own; `Left(0)`: it is expanded.
    ExpandManifest {
        /// Its key.
        home: Home,
        /// Its id.
        manifest: AttemptId,
    },
    /// Removes condemned contents and owes their extents to the group records through the outbox. `Left` counts contents that
    /// have an owner although condemned, which no entry can bring about: they are kept, and it is an alarm.
    Reclaim {
        /// Home and content.
        contents: Vec<(Home, ContentId)>,
    },
    /// Outbox rows of this shard that were delivered.
    OutboxDelivered {
        /// Their sequences.
        sequences: Vec<u64>,
    },
    /// Raises the fence: client mutations of older sessions of that node are refused for ever.
    Fence {
        /// Node.
        node: types::NodeId,
        /// Lowest session still admitted.
        lowest_session: u32,
    },
    /// Sets the row of a bucket in this shard (never to a lower generation); answers what the shard holds of it.
    RaiseBucket {
        /// Bucket.
        bucket: BucketId,
        /// Row.
        row: crate::rows::BucketRow,
    },
    /// Removes up to `max` uploads of a bucket that is being deleted and condemns their parts; `Left(0)`: none is left.
    AbortUploads {
        /// Bucket.
        bucket: BucketId,
        /// Most to take in one entry.
        max: u32,
    },
    /// Drops remembered Completes older than this and outcomes past their deadline; bounded work, answers whether more is left.
    Forget {
        /// Entry time before which Completes are forgotten.
        completed_before_ms: u64,
    },
}

/// About the cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum RootCommand {
    /// Allots a bucket id. `BucketExists` with the present one.
    CreateBucket {
        /// Name.
        name: types::BucketName,
        /// Canonical id.
        owner: String,
        /// Region named by the client.
        location: String,
    },
    /// Applies a change; raises the generation if apply must know of it (versioning).
    ChangeBucket {
        /// Bucket.
        bucket: BucketId,
        /// Change.
        change: BucketChange,
    },
    /// Raises the generation and changes nothing else: the beginning of a deletion (the new generation is raised in the shards
    /// with `deleting`) and its taking back (the next one without).
    RaiseGeneration {
        /// Bucket.
        bucket: BucketId,
    },
    /// The row of that generation is in every shard: nothing is left to raise.
    BucketRaised {
        /// Bucket.
        bucket: BucketId,
        /// Generation that was raised.
        generation: u64,
    },
    /// Removes the bucket (its shards answered that it is empty while it was `deleting` under this generation). Refused with
    /// `Refetch` if the generation has moved on: then somebody may have taken the deletion back.
    DeleteBucket {
        /// Bucket.
        bucket: BucketId,
        /// The generation under which the shards were asked.
        generation: u64,
    },
    /// Adds an account.
    CreateUser(Credential),
    /// Removes an account by name. Refused while it owns buckets.
    DeleteUser(String),
    /// A gateway's new session; the former ones of its node are ended.
    NewSession {
        /// Node.
        node: types::NodeId,
    },
    /// Creates the record before the files.
    CreateGroup {
        /// Id.
        group: GroupId,
        /// Open. In the log as version 1 of the row had it, so that older logs are read.
        #[serde(with = "crate::format::group::version_1")]
        record: GroupRecord,
    },
    /// Compare-and-set Open → Sealing, generation + 1.
    BeginSeal {
        /// Group.
        group: GroupId,
        /// Generation expected.
        generation: u32,
    },
    /// Compare-and-set Sealing → Sealed (or a late answer: the length only grows, never once settled; generation + 1 if it says
    /// anything new).
    EndSeal {
        /// Group.
        group: GroupId,
        /// Generation expected.
        generation: u32,
        /// Largest answer.
        length: u64,
        /// What each replica answered.
        replicas: Vec<Replica>,
        /// Buckets with bytes in it.
        buckets: Vec<BucketId>,
        /// See [`GroupRecord::account`].
        account: Option<Vec<(Home, ContentId)>>,
    },
    /// Marks settled and adds what was found dead. Refused unless sealed at that generation and every replica has answered.
    Settle {
        /// Group.
        group: GroupId,
        /// Generation expected.
        generation: u32,
        /// Dead frames.
        dead: Vec<(u64, u64)>,
    },
    /// Replaces the replicas of a sealed group (repair, move); generation + 1.
    SetReplicas {
        /// Group.
        group: GroupId,
        /// Generation expected.
        generation: u32,
        /// New list.
        replicas: Vec<Replica>,
    },
    /// Adds dead frames. Idempotent.
    AddDead {
        /// Per group, (offset, length).
        dead: Vec<(GroupId, Vec<(u64, u64)>)>,
    },
    /// Sealed, settled and wholly dead → the record is removed; the files may go.
    DropGroup {
        /// Group.
        group: GroupId,
        /// Generation expected.
        generation: u32,
    },
    /// A change of the cluster map.
    Cluster(ClusterCommand),
    /// A bucket will have bytes in these groups, by fast copy: its policy counts for them from now on. In any state and whatever the
    /// generation; idempotent. The generation of a sealed group that gets the bucket anew rises, so that nobody trims or encodes it
    /// who judged it without that policy. Groups that are gone are passed over.
    AddBucket {
        /// Groups.
        groups: Vec<GroupId>,
        /// The bucket; it must exist.
        bucket: BucketId,
    },
    /// Freezes the live sets of sealed, settled, whole groups, raises their generations and creates the records of the parity groups,
    /// before their files. All as expected, or nothing.
    BeginStrip {
        /// Drawn for this attempt.
        strip: StripId,
        /// In the order of their places.
        data: Vec<NewMember>,
        /// New groups, and the disks where their parity will be.
        parity: Vec<(GroupId, DiskId)>,
    },
    /// Compare-and-set Encoding → Encoded, after the parity was proved: each data group keeps one replica.
    EndStrip {
        /// Strip.
        strip: StripId,
        /// Of each data group the generation expected and the disk of the replica that stays.
        kept: Vec<(u32, DiskId)>,
        /// See [`crate::strip::StripRecord::digests`].
        digests: Vec<u32>,
    },
    /// Encoding → nothing: the data groups are as before, the records of the parity groups are removed. `Done` if it is gone already.
    AbortStrip {
        /// Strip.
        strip: StripId,
    },
    /// Encoded → replicas: refused unless every data group has, at the generation expected, as many whole replicas as are said to be
    /// required (none, if it is wholly dead). The records of the parity groups are removed.
    DissolveStrip {
        /// Strip.
        strip: StripId,
        /// Of each data group the generation expected and the replicas required.
        data: Vec<(u32, u8)>,
    },
}

/// What a put, complete or copy made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutOutcome {
    /// `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Stored checksum.
    pub checksum: Option<Checksum>,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
}

/// What apply answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Done, nothing to say.
    Done,
    /// A version was made.
    Put(PutOutcome),
    /// DeleteObject.
    Deleted {
        /// Removed version or made marker.
        version: Option<VersionId>,
        /// A marker was made or removed.
        delete_marker: bool,
    },
    /// Tags were set on this version.
    Tagged(Option<VersionId>),
    /// A part was stored at this time.
    Part {
        /// Milliseconds since the epoch.
        modified_ms: u64,
    },
    /// A bucket was made or changed.
    Bucket(BucketInfo),
    /// RaiseBucket: what of the bucket is in this shard now, and how far the answer reaches.
    BucketHolds {
        /// Versions or delete markers.
        versions: bool,
        /// Uploads in progress.
        uploads: bool,
        /// First key of the bucket that this shard does not hold: the walk goes on there. `None`: to the bucket's end.
        covered_to: Option<ObjectKey>,
    },
    /// How much is left of bounded work.
    Left(u32),
    /// The new session's number.
    Session(u32),
    /// The group's record after the change.
    Group(Box<GroupRecord>),
    /// Not done; final for the attempt (kept), except `Moved` and `Refetch`, which decide nothing.
    Refused(Refusal),
    /// The cluster map after the change.
    Map(MapChange),
}

/// Why apply refused.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The key is not in this shard any more.
    Moved,
    /// The bucket changed: read it again.
    Refetch,
    /// Later than its deadline.
    Deadline,
    /// The attempt's session has ended.
    Fenced,
    /// The bucket is gone or being deleted.
    NoSuchBucket,
    /// Present already.
    BucketExists(Box<BucketInfo>),
    /// No live current version; the newest version, if it is a delete marker.
    NoSuchKey(Option<VersionId>),
    /// No such version.
    NoSuchVersion,
    /// The version is a delete marker (made then).
    IsDeleteMarker(VersionId, u64),
    /// Unknown, completed or aborted.
    NoSuchUpload,
    /// Missing, or another ETag or checksum.
    InvalidPart(u32),
    /// A part but the last is below 5 MiB.
    PartTooSmall(u32, u64),
    /// Whole-object checksum or size differs.
    BadDigest(String),
    /// The named condition did not hold.
    Precondition(Condition),
    /// A content to be owned is condemned or gone: the copy begins again under a new attempt.
    SourceGone,
    /// Name or access key taken.
    UserExists,
    /// No such user.
    NoSuchUser,
    /// The user owns buckets.
    UserHasBuckets,
    /// A compare-and-set lost; the record as it is.
    Stale(Option<Box<GroupRecord>>),
    /// The content is owned by another write or condemned: a bug of the caller or a late duplicate.
    ContentTaken,
    /// Contradicts the state.
    Invalid(String),
    /// A change of the cluster map.
    Cluster(ClusterRefusal),
}

/// The conditions that apply judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Condition {
    /// `If-None-Match`.
    IfNoneMatch,
    /// `If-Match`.
    IfMatch,
    /// `x-amz-if-match-last-modified-time`.
    LastModified,
    /// `x-amz-if-match-size`.
    Size,
}
