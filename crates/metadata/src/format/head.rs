//! The first piece of a version row, read by hand: a listing reads a thousand of them for a page, and the generic decoder takes
//! a call for each byte of an ETag.
//!
//! Promises: what it reads is what the generic decoder reads; of anything that it does not know it says nothing, and the
//! generic decoder is asked. Refuses to know: what is wrong with a row.

use super::version::{ChecksumHead, ObjectHead, VersionHead};
use crate::rows::DataRef;
use types::{AttemptId, ChecksumAlgorithm, ChecksumKind, ETag};

/// The head and what follows it, if it is of the usual form.
pub(super) fn head(fields: &[u8]) -> Option<(VersionHead<'_>, &[u8])> {
    let mut rest = Rest(fields);
    let (sequence, attempt) = (rest.u64()?, rest.attempt()?);
    let (null, modified_ms) = (rest.flag()?, rest.u64()?);
    let object = if rest.flag()? { Some(rest.object()?) } else { None };
    Some((VersionHead { sequence, attempt, null, modified_ms, object }, rest.0))
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Seven bits a byte, the lowest first. Numbers of more than 63 bits, and spellings with empty bytes, are left to others.
    fn u64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    fn array(&mut self) -> Option<[u8; 16]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn attempt(&mut self) -> Option<AttemptId> {
        Some(AttemptId { node: self.u32()?, session: self.u32()?, sequence: self.u64()? })
    }

    fn object(&mut self) -> Option<ObjectHead<'a>> {
        let size = self.u64()?;
        let etag = match self.byte()? {
            0 => ETag::Md5(self.array()?),
            1 => ETag::Multipart { md5: self.array()?, parts: self.u32()? },
            _ => return None,
        };
        let checksum = if self.flag()? { Some(self.checksum()?) } else { None };
        let storage_class = if self.flag()? { Some(std::str::from_utf8(self.bytes()?).ok()?) } else { None };
        let data = match self.byte()? {
            0 => DataRef::Body(self.attempt()?),
            1 => DataRef::Manifest { id: self.attempt()?, parts: self.u32()? },
            _ => return None,
        };
        Some(ObjectHead { size, etag, checksum, storage_class, data })
    }

    fn checksum(&mut self) -> Option<ChecksumHead<'a>> {
        let algorithm = match self.byte()? {
            0 => ChecksumAlgorithm::Crc32,
            1 => ChecksumAlgorithm::Crc32c,
            2 => ChecksumAlgorithm::Crc64Nvme,
            3 => ChecksumAlgorithm::Sha1,
            4 => ChecksumAlgorithm::Sha256,
            _ => return None,
        };
        let kind = match self.byte()? {
            0 => ChecksumKind::FullObject,
            1 => ChecksumKind::Composite { parts: self.u32()? },
            _ => return None,
        };
        Some(ChecksumHead { algorithm, kind, digest: self.bytes()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..200u64, any::<u64>(), Just(u64::MAX), Just(1 << 62), Just(1 << 63)]
    }

    fn attempt() -> impl Strategy<Value = AttemptId> {
        (any::<u32>(), 0..300u32, number()).prop_map(|(node, session, sequence)| AttemptId { node, session, sequence })
    }

    fn checksum() -> impl Strategy<Value = (ChecksumAlgorithm, ChecksumKind, Vec<u8>)> {
        let kind = prop_oneof![
            Just(ChecksumKind::FullObject),
            any::<u32>().prop_map(|parts| ChecksumKind::Composite { parts })
        ];
        (prop::sample::select(&ChecksumAlgorithm::ALL[..]), kind, prop::collection::vec(any::<u8>(), 0..40))
    }

    type Object =
        (u64, [u8; 16], Option<u32>, Option<(ChecksumAlgorithm, ChecksumKind, Vec<u8>)>, Option<String>, DataRef);

    fn object() -> impl Strategy<Value = Object> {
        let data = prop_oneof![
            attempt().prop_map(DataRef::Body),
            (attempt(), any::<u32>()).prop_map(|(id, parts)| DataRef::Manifest { id, parts }),
        ];
        let (parts, checksum) = (prop::option::of(any::<u32>()), prop::option::of(checksum()));
        (number(), any::<[u8; 16]>(), parts, checksum, prop::option::of("\\PC{0,12}"), data)
    }

    fn row(of: &(u64, AttemptId, bool, u64, Option<Object>)) -> Vec<u8> {
        let (sequence, attempt, null, modified_ms, object) = of;
        let object = object.as_ref().map(|(size, md5, parts, checksum, storage_class, data)| ObjectHead {
            size: *size,
            etag: parts.map_or(ETag::Md5(*md5), |parts| ETag::Multipart { md5: *md5, parts }),
            checksum: checksum.as_ref().map(|(algorithm, kind, digest)| ChecksumHead {
                algorithm: *algorithm,
                kind: *kind,
                digest,
            }),
            storage_class: storage_class.as_deref(),
            data: *data,
        });
        let head =
            VersionHead { sequence: *sequence, attempt: *attempt, null: *null, modified_ms: *modified_ms, object };
        postcard::to_allocvec(&head).expect("encodes")
    }

    proptest! {
        #[test]
        fn what_is_read_by_hand_is_what_the_generic_decoder_reads(
            of in (number(), attempt(), any::<bool>(), number(), prop::option::of(object())),
            tail in prop::collection::vec(any::<u8>(), 0..8),
            harm in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut bytes = row(&of);
            bytes.extend_from_slice(&tail);
            if let Some((at, byte)) = harm {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let generic = postcard::take_from_bytes::<VersionHead<'_>>(&bytes).ok();
            match head(&bytes) {
                Some(by_hand) => prop_assert_eq!(Some(by_hand), generic),
                // Left to the generic decoder: only what is damaged, and numbers beyond 63 bits.
                None if harm.is_none() => prop_assert!(bytes.windows(9).any(|w| w.iter().all(|b| *b >= 0x80))),
                None => {}
            }
        }

        #[test]
        fn a_usual_row_is_read_by_hand(n in 0..1u64 << 60, md5 in any::<[u8; 16]>()) {
            let attempt = AttemptId { node: 1, session: 3, sequence: n };
            let sum = (ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject, vec![1; 8]);
            let of = (n, attempt, true, n, Some((4096, md5, None, Some(sum), None, DataRef::Body(attempt))));
            prop_assert!(head(&row(&of)).is_some());
        }
    }
}
