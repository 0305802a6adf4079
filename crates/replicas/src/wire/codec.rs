//! Fixed-width little-endian numbers and length-prefixed bytes, written and read in order.
//!
//! Promises: reading never panics and never reserves more than the bytes at hand; what is left over is an error.
//! Refuses to know: messages.

/// Bytes that are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// Writes.
#[derive(Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// At most 65,535 bytes: more are cut off.
    pub(super) fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
        self.u16(text.len() as u16);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Reads.
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl<'a> In<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("cut short"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn text(&mut self, max_bytes: usize) -> Result<&'a str, Malformed> {
        let len = usize::from(self.u16()?);
        if len > max_bytes {
            return Err(Malformed("a text that is too long"));
        }
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed("a text that is not UTF-8"))
    }

    /// The number of what follows, each at least `least_bytes` long.
    pub(super) fn count(&mut self, max: usize, least_bytes: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > max || count.saturating_mul(least_bytes) > self.0.len() {
            return Err(Malformed("more items than there can be"));
        }
        Ok(count)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        }
    }

    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes behind the message")) }
    }
}
