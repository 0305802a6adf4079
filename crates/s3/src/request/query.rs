//! The query string, decoded.
//!
//! Promises: the order sent is kept, every parameter is there, also the repeated ones. `+` is a space, as in forms.

use super::target::percent_decode;
use crate::error::S3Result;

/// Decoded query parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `raw` (what follows the `?`).
    pub fn parse(raw: &str) -> S3Result<Self> {
        if raw.is_empty() {
            return Ok(Query::default());
        }
        let mut pairs = Vec::with_capacity(8);
        for pair in raw.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((percent_decode(name, true)?, percent_decode(value, true)?));
        }
        Ok(Query(pairs))
    }

    /// The first parameter of that name. A flag such as `?uploads` has the value "".
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether the parameter is there.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All, in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
