//! Typed reads of the rows.
//!
//! Promises: what is answered was read at the one position of the [`Read`] given; damage is an error, never "not there".
//! Refuses to know: whether that position is linearizable (the shard's driver gives it), who may read.

pub mod content;
pub mod object;
pub mod root;
pub mod shard;
pub mod upload;

use crate::format::FormatError;
use crate::format::key::Parsed;
use crate::format::value::RowValue;
use crate::rows::Home;
use crate::tree::{Read, Row, TreeError};

/// A read failed; nothing is known of the row.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The tree could not answer.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The bytes are not a row of ours.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl From<ReadError> for TreeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Tree(tree) => tree,
            ReadError::Format(format) => format.into(),
        }
    }
}

/// One row, decoded.
pub(crate) fn get<T: RowValue>(read: &dyn Read, key: &[u8]) -> Result<Option<T>, ReadError> {
    let row = read.get(key)?;
    Ok(row.map(|value| T::decode(&value)).transpose()?)
}

/// The rows of a range, each taken apart by `of`.
pub(crate) fn rows<'a, T, F>(
    read: &'a dyn Read,
    from: &[u8],
    to: &[u8],
    of: F,
) -> impl Iterator<Item = Result<T, ReadError>> + Send + use<'a, T, F>
where
    F: Fn(&Row) -> Result<T, FormatError> + Send + 'a,
{
    read.range(from, to).map(move |row| Ok(of(&row?)?))
}

/// Where a row is, its suffix and its value.
pub(crate) fn at<T: RowValue>(row: &Row) -> Result<(Home, Parsed<'_>, T), FormatError> {
    let parsed = Parsed::new(&row.0)?;
    Ok((parsed.home()?, parsed, T::decode(&row.1)?))
}
