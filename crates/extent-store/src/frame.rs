//! A frame ready to be written: header, payload and padding in one aligned buffer.
//!
//! Promises: a [`Frame`] that exists is sound (its header matches its payload), lies on a 4 KiB boundary in memory and is
//! a multiple of 4 KiB long; building one copies no payload. Refuses to know: files, disks.

use bytes::Bytes;
use env::buf::{ALIGN, AlignedBuf, PooledBuf};
use types::ClusterId;

use crate::error::Damage;
use crate::format::{FormatError, FrameAddress, FrameHeader, FrameOrigin, HeaderView, SliceCrcs, frame_bytes};
use crate::limits::{FILE_MAX_BYTES, FIRST_FRAME_OFFSET, FRAME_MAX_BYTES, HEADER_BYTES};

/// No file has this generation.
const CANONICAL_GENERATION: u32 = 0;

/// A frame's bytes. Cheap to clone: all replicas share them.
#[derive(Clone)]
pub struct Frame {
    bytes: Bytes,
    cluster: ClusterId,
    address: FrameAddress,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Content is never printed: it may be an object's bytes.
        f.debug_struct("Frame").field("address", &self.address).field("len", &self.bytes.len()).finish()
    }
}

impl Frame {
    /// Builds a frame around a payload that already lies in `buf` from [`HEADER_BYTES`] to its end.
    ///
    /// `crcs` are those of that payload (the caller computed them while the bytes arrived, or by [`SliceCrcs::of`]). A
    /// wrong one makes a frame that every reader refuses. Fills the first block, pads the tail with zeros, copies nothing.
    pub fn build(
        mut buf: PooledBuf,
        cluster: ClusterId,
        address: FrameAddress,
        origin: &FrameOrigin,
        crcs: &SliceCrcs,
    ) -> Frame {
        assert_eq!(buf.len(), HEADER_BYTES + crcs.payload_bytes() as usize, "the payload lies behind the header block");
        assert_addressable(&address);
        crate::format::encode_header(&mut buf[..HEADER_BYTES], cluster, &address, origin, crcs);
        buf.pad_to_alignment();
        Frame { bytes: buf.freeze(), cluster, address }
    }

    /// Takes bytes that came from elsewhere: checks header and payload CRCs. Copies only if the memory is not aligned.
    pub fn verify(bytes: Bytes) -> Result<Frame, Damage> {
        let view = HeaderView::parse(&bytes).map_err(Damage::Header)?;
        let (cluster, address) = (view.cluster(), view.address());
        if view.frame_bytes() != bytes.len() as u64 {
            return Err(Damage::Truncated);
        }
        if !is_addressable(&address) {
            return Err(Damage::Header(FormatError::Field("offset")));
        }
        let payload_end = HEADER_BYTES + view.payload_bytes() as usize;
        if let Some(slice) = view.first_bad_slice(0, &bytes[HEADER_BYTES..payload_end]) {
            return Err(Damage::Slice(slice as u32));
        }
        if !crate::format::is_zero(&bytes[payload_end..]) {
            return Err(Damage::Padding);
        }
        let bytes = if (bytes.as_ptr() as usize).is_multiple_of(ALIGN) { bytes } else { realigned(&bytes) };
        Ok(Frame { bytes, cluster, address })
    }

    /// The same payload at another address, for when a group failed and the extent goes elsewhere: copies the payload
    /// into `buf`, an empty buffer of at least the frame's size.
    pub fn readdressed(&self, mut buf: PooledBuf, address: FrameAddress) -> Frame {
        assert!(buf.is_empty(), "an empty buffer");
        assert_addressable(&address);
        let header = self.header();
        buf.extend_from_slice(&self.bytes);
        let moved = FrameHeader { address, ..header };
        moved.encode(&mut buf[..HEADER_BYTES]);
        Frame { bytes: buf.freeze(), cluster: self.cluster, address }
    }

    /// The cluster it was made in.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Its header as it is in a file of generation 0. This block and the rest of [`Frame::bytes`] are the frame's *canonical bytes*, which
    /// are the same whatever file it was read from: what parity is computed over. They are a sound frame themselves, which a copy takes
    /// under its own generation.
    pub fn canonical_header(&self) -> Vec<u8> {
        let header = self.header();
        let mut block = vec![0; HEADER_BYTES];
        FrameHeader { address: FrameAddress { generation: CANONICAL_GENERATION, ..header.address }, ..header }
            .encode(&mut block);
        block
    }

    /// Where it belongs.
    pub fn address(&self) -> FrameAddress {
        self.address
    }

    /// Its bytes, padding included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its header as a value.
    pub fn header(&self) -> FrameHeader {
        FrameHeader::decode(&self.bytes).expect("checked or encoded when the frame was made")
    }

    /// The payload without header and padding.
    pub fn payload(&self) -> Bytes {
        let payload_bytes = self.header().payload_bytes() as usize;
        self.bytes.slice(HEADER_BYTES..HEADER_BYTES + payload_bytes)
    }

    /// Offset just behind it.
    pub fn end(&self) -> u64 {
        self.address.offset + self.bytes.len() as u64
    }

    /// Bytes of the frame around a payload of `payload_bytes`.
    pub fn bytes_for(payload_bytes: u32) -> u64 {
        frame_bytes(payload_bytes)
    }

    /// What a buffer must hold for any frame.
    pub const MAX_BYTES: usize = FRAME_MAX_BYTES;
}

fn is_addressable(address: &FrameAddress) -> bool {
    let offset = address.offset;
    offset.is_multiple_of(ALIGN as u64) && (FIRST_FRAME_OFFSET..FILE_MAX_BYTES).contains(&offset)
}

fn assert_addressable(address: &FrameAddress) {
    assert!(
        is_addressable(address),
        "frames lie on 4 KiB boundaries behind the file's header, not at {}",
        address.offset
    );
}

fn realigned(bytes: &[u8]) -> Bytes {
    let mut buf = AlignedBuf::new(bytes.len());
    buf.extend_from_slice(bytes);
    Bytes::from_owner(buf)
}
