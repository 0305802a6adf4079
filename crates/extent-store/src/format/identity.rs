//! The `identity` file of a disk.
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic "ASHLARID"
//!      8      4  version (1)
//!     12      4  node id
//!     16      8  cluster id
//!     24      8  disk id
//!     32      8  incarnation: how often the disk was started
//!     40     20  zero
//!     60      4  CRC-32C of bytes 0 to 59
//! ```

use types::{ClusterId, DiskId, NodeId};

use super::FormatError;
use super::field::{check, close, put, put_u32, put_u64, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"ASHLARID";
const VERSION: u32 = 1;

/// The identity file as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    /// Cluster.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Disk.
    pub disk: DiskId,
    /// Raised at each start.
    pub incarnation: u64,
}

impl IdentityRecord {
    /// Bytes of the file.
    pub const LEN: usize = 64;

    /// The file's bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut block = [0; Self::LEN];
        put(&mut block, 0, MAGIC);
        put_u32(&mut block, 8, VERSION);
        put_u32(&mut block, 12, self.node);
        put_u64(&mut block, 16, self.cluster.0);
        put_u64(&mut block, 24, self.disk.0);
        put_u64(&mut block, 32, self.incarnation);
        close(&mut block);
        block
    }

    /// The inverse; anything longer or shorter is refused.
    pub fn decode(bytes: &[u8]) -> Result<IdentityRecord, FormatError> {
        if bytes.len() < Self::LEN {
            return Err(FormatError::Short);
        }
        if bytes.len() > Self::LEN {
            return Err(FormatError::Field("length"));
        }
        check(bytes, MAGIC, VERSION)?;
        Ok(IdentityRecord {
            cluster: ClusterId(u64_at(bytes, 16)),
            node: u32_at(bytes, 12),
            disk: DiskId(u64_at(bytes, 24)),
            incarnation: u64_at(bytes, 32),
        })
    }
}
