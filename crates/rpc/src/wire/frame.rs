//! The header of a frame, and the checksum of what follows it.
//!
//! ```text
//! byte  0       1       2       3       4       5       6       7
//!    0  'A'     's'     'h'     'R'     version kind    service 0
//!    8  number of the call, 0 where there is none
//!   16  bytes of the head               bytes of the body
//!   24  CRC-64/NVME of head and body
//!   32  milliseconds left to answer     CRC-32C of the 36 bytes before
//!   40  head, then body
//! ```
//!
//! Promises: what [`Header::decode`] accepts, [`Header::encode`] gives back byte for byte; lengths are within the limits.
//! Refuses to know: where the bytes come from.

use crate::limits::{MAX_BODY_BYTES, MAX_HEAD_BYTES};
use crate::{Message, Service};
use crc_fast::{CrcAlgorithm, Digest, checksum};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 40;
const MAGIC: [u8; 4] = *b"AshR";
const VERSION: u8 = 1;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Wants an answer.
    Call = 1,
    /// Wants none.
    Send = 2,
    /// Answers a call.
    Answer = 3,
    /// The call was not begun; the body says why, as text.
    Refusal = 4,
    /// The call was begun and gives no answer: the handler may have acted.
    NoAnswer = 5,
    /// Are you there?
    Ping = 6,
    /// Yes.
    Pong = 7,
}

/// Why bytes are not a frame. The connection they came on is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The first bytes are those of something else.
    #[error("not a frame")]
    Magic,
    /// Of a later release.
    #[error("a frame of version {0}")]
    Version(u8),
    /// Damaged on the way, or never a header.
    #[error("a header whose checksum does not fit")]
    Header,
    /// A number that no release has used.
    #[error("a frame of kind {0}")]
    Kind(u8),
    /// A byte that must be zero is not.
    #[error("a frame with reserved bits")]
    Reserved,
    /// Above the limits, or a payload where there is none.
    #[error("a frame of {0} and {1} bytes")]
    Length(u32, u32),
    /// Damaged on the way.
    #[error("a payload whose checksum does not fit")]
    Payload,
}

/// The header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) service: Service,
    pub(crate) number: u64,
    pub(crate) head_bytes: u32,
    pub(crate) body_bytes: u32,
    pub(crate) payload_crc: u64,
    pub(crate) timeout_ms: u32,
}

impl Header {
    /// The header of a frame that carries `message`, whose lengths are within the limits.
    pub(crate) fn of(kind: Kind, service: Service, number: u64, timeout_ms: u32, message: &Message) -> Header {
        assert!(
            fits(message.head.len(), message.body.len()),
            "a message above the limits is refused before it is framed"
        );
        Header {
            kind,
            service,
            number,
            head_bytes: message.head.len() as u32,
            body_bytes: message.body.len() as u32,
            payload_crc: payload_crc(&message.head, &message.body),
            timeout_ms,
        }
    }

    /// Bytes that follow the header.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.head_bytes as usize + self.body_bytes as usize
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[VERSION, self.kind as u8, self.service.0, 0]);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.timeout_ms.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        if bytes[..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(FrameError::Version(bytes[4]));
        }
        if number(bytes, 36) != header_crc(bytes) {
            return Err(FrameError::Header);
        }
        if bytes[7] != 0 {
            return Err(FrameError::Reserved);
        }
        let kind = Kind::decode(bytes[5])?;
        let (head_bytes, body_bytes) = (number(bytes, 16), number(bytes, 20));
        let allowed = match kind {
            Kind::Call | Kind::Send | Kind::Answer => fits(head_bytes as usize, body_bytes as usize),
            Kind::Refusal => head_bytes == 0 && fits(0, body_bytes as usize),
            Kind::NoAnswer | Kind::Ping | Kind::Pong => (head_bytes, body_bytes) == (0, 0),
        };
        if !allowed {
            return Err(FrameError::Length(head_bytes, body_bytes));
        }
        Ok(Header {
            kind,
            service: Service(bytes[6]),
            number: long_number(bytes, 8),
            head_bytes,
            body_bytes,
            payload_crc: long_number(bytes, 24),
            timeout_ms: number(bytes, 32),
        })
    }

    /// Whether this is the payload the header was made for.
    pub(crate) fn verify(&self, head: &[u8], body: &[u8]) -> Result<(), FrameError> {
        match payload_crc(head, body) == self.payload_crc {
            true => Ok(()),
            false => Err(FrameError::Payload),
        }
    }
}

impl Kind {
    fn decode(byte: u8) -> Result<Kind, FrameError> {
        use Kind::{Answer, Call, NoAnswer, Ping, Pong, Refusal, Send};
        let all = [Call, Send, Answer, Refusal, NoAnswer, Ping, Pong];
        all.into_iter().find(|kind| *kind as u8 == byte).ok_or(FrameError::Kind(byte))
    }
}

/// Whether a message is within the limits.
pub(crate) fn fits(head_bytes: usize, body_bytes: usize) -> bool {
    head_bytes <= MAX_HEAD_BYTES && body_bytes <= MAX_BODY_BYTES
}

fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..36]) as u32
}

fn payload_crc(head: &[u8], body: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(head);
    digest.update(body);
    digest.finalize()
}

fn number(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn long_number(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::{FrameError, HEADER_BYTES, Header, Kind, header_crc};
    use crate::limits::{MAX_BODY_BYTES, MAX_HEAD_BYTES};
    use crate::{Message, Service};
    use bytes::Bytes;
    use proptest::prelude::{any, proptest};

    fn golden() -> Header {
        let message = Message { head: Bytes::from_static(b"head"), body: Bytes::from_static(b"the body") };
        Header::of(Kind::Call, Service(3), 0x0102_0304_0506_0708, 5_000, &message)
    }

    #[test]
    fn a_header_has_the_bytes_it_always_had() {
        let bytes = hex::encode(golden().encode());
        assert_eq!(bytes, GOLDEN);
        assert_eq!(Header::decode(&golden().encode()), Ok(golden()));
    }

    const GOLDEN: &str = "4173685201010300080706050403020104000000080000000e90395004fea59e881300009ea6e658";

    /// A header with one field overwritten and the checksum made right again.
    fn forged(at: usize, field: &[u8]) -> Result<Header, FrameError> {
        let mut bytes = golden().encode();
        bytes[at..at + field.len()].copy_from_slice(field);
        let crc = header_crc(&bytes);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        Header::decode(&bytes)
    }

    #[test]
    fn what_no_release_sends_is_refused_by_name() {
        assert_eq!(forged(0, b"HTTP"), Err(FrameError::Magic));
        assert_eq!(forged(4, &[2]), Err(FrameError::Version(2)));
        assert_eq!(forged(5, &[0]), Err(FrameError::Kind(0)));
        assert_eq!(forged(5, &[8]), Err(FrameError::Kind(8)));
        assert_eq!(forged(7, &[1]), Err(FrameError::Reserved));
        assert_eq!(forged(5, &[Kind::Ping as u8]), Err(FrameError::Length(4, 8)));
        assert_eq!(forged(5, &[Kind::Refusal as u8]), Err(FrameError::Length(4, 8)));
    }

    #[test]
    fn huge_lengths_are_refused_and_the_largest_allowed_ones_are_not() {
        for length in [u32::MAX, 1 << 31, MAX_BODY_BYTES as u32 + 1] {
            assert_eq!(forged(20, &length.to_le_bytes()), Err(FrameError::Length(4, length)));
        }
        for length in [u32::MAX, MAX_HEAD_BYTES as u32 + 1] {
            assert_eq!(forged(16, &length.to_le_bytes()), Err(FrameError::Length(length, 8)));
        }
        assert!(forged(20, &(MAX_BODY_BYTES as u32).to_le_bytes()).is_ok());
        assert!(forged(16, &(MAX_HEAD_BYTES as u32).to_le_bytes()).is_ok());
    }

    #[test]
    fn any_changed_bit_of_a_header_is_noticed() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = golden().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn any_changed_bit_of_a_payload_is_noticed() {
        let header = golden();
        assert_eq!(header.verify(b"head", b"the body"), Ok(()));
        assert_eq!(header.verify(b"headt", b"he body"), Ok(()), "where head ends is in the header");
        for bit in 0..12 * 8 {
            let mut payload = *b"headthe body";
            payload[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(header.verify(&payload[..4], &payload[4..]), Err(FrameError::Payload), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_refused_or_encodes_to_the_same_bytes(
            mut bytes in proptest::array::uniform32(any::<u8>()),
            rest in proptest::array::uniform4(any::<u8>()),
            real in any::<bool>(),
        ) {
            if real {
                // So that not every case ends at the magic.
                bytes[..5].copy_from_slice(b"AshR\x01");
                bytes[5] %= 9;
                bytes[7] %= 2;
                for zero in [18, 19, 22, 23] {
                    bytes[zero] %= 2;
                }
            }
            let mut header = [0; HEADER_BYTES];
            header[..32].copy_from_slice(&bytes);
            header[32..36].copy_from_slice(&rest);
            let crc = header_crc(&header);
            header[36..].copy_from_slice(&crc.to_le_bytes());
            if let Ok(decoded) = Header::decode(&header) {
                assert_eq!(decoded.encode(), header);
            }
        }
    }
}
