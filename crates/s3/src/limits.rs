//! Every limit of the S3 edge by name, with its arithmetic.
//!
//! Promises: no other file hides a number that bounds memory or time.

use std::time::Duration;

/// Time to send a whole request head. A head is a few KiB; a client that needs longer holds a connection for nothing.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Headers of a request: what hyper parses without allocating. AWS-SDK requests carry about 20.
pub const HEADERS_MAX: usize = 100;
/// Clock difference allowed between client and server, as AWS.
pub const CLOCK_SKEW_MS: u64 = 15 * 60 * 1000;
/// Longest life of a presigned URL: 7 days, as AWS.
pub const PRESIGN_MAX_SECONDS: u64 = 604_800;
/// Signing keys remembered: one per access key (about 200 bytes each, so 2 MiB).
pub const SIGNING_KEYS_MAX: usize = 10_000;
/// Headers in a SignedHeaders list; more than a request may have is nonsense.
pub const SIGNED_HEADERS_MAX: usize = HEADERS_MAX;
/// Bytes of one line of aws-chunked framing: 16 hex digits and `;chunk-signature=` with 64 are 97.
pub const CHUNK_LINE_MAX_BYTES: usize = 512;
/// Hex digits of a chunk size: 2^64-1 has 16; more (leading zeros) are refused.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// Smallest aws-chunk but the last, as AWS.
pub const CHUNK_MIN_BYTES: u64 = 8 << 10;
/// Bytes of all trailers of a body: one checksum (at most 44 bytes) and a signature (64).
pub const TRAILERS_MAX_BYTES: usize = 4 << 10;
/// Trailers of one body.
pub const TRAILERS_MAX: usize = 16;
/// A body from which nothing arrives for this long has failed.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this grace a body must have kept up [`BODY_MIN_BYTES_PER_SECOND`] on average while we waited for it.
pub const BODY_RATE_GRACE: Duration = Duration::from_secs(60);
/// Slower than a modem: such a client only holds resources.
pub const BODY_MIN_BYTES_PER_SECOND: u64 = 1 << 10;
/// While a client is waited for, so many bytes must be taken within [`WRITE_RATE_WINDOW`] of waiting; 1 KiB a second.
pub const WRITE_WINDOW_BYTES: u64 = 60 << 10;
/// Time spent waiting, not time that passes: a client is not blamed for our own disks.
pub const WRITE_RATE_WINDOW: Duration = Duration::from_secs(60);
/// Bytes of an unread body that are read and dropped so that the client sees the answer and not a reset.
pub const DRAIN_MAX_BYTES: u64 = 1 << 20;
/// Time for that.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Elements of an XML body: a Complete of 10,000 parts with 8 elements each, and room.
pub const XML_NODES_MAX: usize = 120_000;
/// Depth of an XML body; ours need 6.
pub const XML_DEPTH_MAX: usize = 16;
/// Attributes (with namespace declarations) of one XML element; ours need 2.
pub const XML_ATTRIBUTES_MAX: usize = 16;
/// Bytes of an XML body by default; AWS says 2 MiB for a batch delete, and 1 MiB suffices for 10,000 parts.
pub const XML_MAX_BYTES: usize = 2 << 20;
/// Bytes of all form fields of a POST but the file: AWS says 20 KiB.
pub const FORM_FIELDS_MAX_BYTES: usize = 20 << 10;
/// Form fields of a POST.
pub const FORM_FIELDS_MAX: usize = 100;
/// Bytes of a multipart boundary (RFC 2046 says 70).
pub const FORM_BOUNDARY_MAX_BYTES: usize = 70;
/// Bytes of the header block of one form part.
pub const FORM_PART_HEAD_MAX_BYTES: usize = 4 << 10;
/// Conditions in a POST policy.
pub const POLICY_CONDITIONS_MAX: usize = 100;
/// Bytes that hyper reads at once at most: also the largest piece of a body, which stays in the cache from one digest to the next.
pub const READ_BUFFER_MAX_BYTES: usize = 256 << 10;
/// Parsed bucket policies remembered: about 1 KiB each, so 1 MiB.
pub const POLICIES_REMEMBERED_MAX: usize = 1000;
/// Bytes of a bucket policy, as AWS.
pub const BUCKET_POLICY_MAX_BYTES: usize = 20 << 10;
/// Bytes read of a bucket policy before its own limit is judged, so that it is judged with its own code.
pub const BUCKET_POLICY_READ_MAX_BYTES: usize = 256 << 10;
/// Cross-origin rules of a bucket, as AWS.
pub const CORS_RULES_MAX: usize = 100;
/// Bytes of a settings document (CORS, tags, ACL, versioning, ...): AWS's limit for CORS, which is the largest.
pub const SETTING_MAX_BYTES: usize = 64 << 10;
/// Buckets of one page of ListBuckets, as AWS.
pub const LIST_BUCKETS_MAX: u32 = 10_000;
/// Parts of one page of ListParts and GetObjectAttributes, as AWS.
pub const LIST_PARTS_MAX: u32 = 1000;
/// Deletes of one batch under way at once: enough to share a flush, few enough to be fair.
pub const DELETE_CONCURRENT_MAX: usize = 64;
