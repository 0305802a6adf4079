//! XML as S3 uses it: a small writer, and a reader that bounds its work.
//!
//! Promises: what is written is well-formed whatever the texts hold; what is read costs memory in proportion to its bytes,
//! which the caller bounds. Refuses to know: any element's meaning.

mod reader;
#[cfg(test)]
mod reader_tests;
mod writer;

pub use reader::{XmlNode, parse};
pub use writer::{NAMESPACE, XmlWriter};
