//! Values of `body` rows. Inline bytes stand at the end as they are, so that a GET takes a slice of the row.
//!
//! ```text
//! version (1) | 00 | the bytes
//! version (1) | 01 | postcard(size, runs, locations)
//! version (1) | 02 | postcard(reference)
//! ```

use super::value::{RowValue, after_version, whole};
use super::{FormatError, family};
use crate::rows::{BodyRow, ContentBytes, Location, Reference, Run};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;
const INLINE: u8 = 0;
const EXTENTS: u8 = 1;
const REFERENCE: u8 = 2;

#[derive(Serialize)]
struct ExtentsRef<'a> {
    size: u64,
    runs: &'a [Run],
    locations: &'a [Location],
}

#[derive(Deserialize)]
struct Extents {
    size: u64,
    runs: Vec<Run>,
    locations: Vec<Location>,
}

fn encode_kind<T: Serialize>(kind: u8, value: &T) -> Bytes {
    let out = postcard::to_extend(value, vec![VERSION, kind]);
    out.expect("rows are plain values and a vector takes all bytes").into()
}

impl RowValue for BodyRow {
    fn encode(&self) -> Bytes {
        match self {
            BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. } => {
                let mut out = Vec::with_capacity(2 + bytes.len());
                out.extend_from_slice(&[VERSION, INLINE]);
                out.extend_from_slice(bytes);
                out.into()
            }
            BodyRow::Content { size, bytes: ContentBytes::Extents { runs, locations } } => {
                encode_kind(EXTENTS, &ExtentsRef { size: *size, runs, locations })
            }
            BodyRow::Reference(reference) => encode_kind(REFERENCE, reference),
        }
    }

    fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
        let fields = after_version(family::BODY, VERSION, bytes)?;
        match fields.split_first() {
            Some((&INLINE, payload)) => {
                let bytes = bytes.slice_ref(payload);
                Ok(BodyRow::Content { size: bytes.len() as u64, bytes: ContentBytes::Inline(bytes) })
            }
            Some((&EXTENTS, payload)) => {
                let Extents { size, runs, locations } = whole(family::BODY, payload)?;
                Ok(BodyRow::Content { size, bytes: ContentBytes::Extents { runs, locations } })
            }
            Some((&REFERENCE, payload)) => Ok(BodyRow::Reference(whole::<Reference>(family::BODY, payload)?)),
            Some((kind, _)) => Err(FormatError::new(family::BODY, format!("unknown kind {kind}"))),
            None => Err(FormatError::new(family::BODY, "no kind")),
        }
    }
}

/// Whether a `body` row holds its bytes inline, without decoding it.
pub fn is_inline(row: &[u8]) -> bool {
    row.starts_with(&[VERSION, INLINE])
}
