//! A version that was looked up, and its bytes.

use bytes::Bytes;
use object_controller::api::{ObjectInfo, PartInfo, ReadBody, ReadHandle, StoreError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::state::Object;

/// Bytes handed out at once; small enough that tests see several.
const CHUNK_BYTES: usize = 64 << 10;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Holds the version's bytes for as long as it lives.
pub struct Handle {
    pub info: ObjectInfo,
    pub object: Arc<Object>,
}

impl ReadHandle for Handle {
    fn info(&self) -> &ObjectInfo {
        &self.info
    }

    fn parts(&self, index: u32, max: u32) -> Answer<'_, Vec<PartInfo>> {
        let parts = self.object.parts.iter().skip(index as usize).take(max as usize).cloned().collect();
        Box::pin(std::future::ready(Ok(parts)))
    }

    fn read(self: Box<Self>, offset: u64, len: u64) -> Box<dyn ReadBody> {
        let (from, to) = (offset as usize, (offset + len) as usize);
        Box::new(Body { rest: self.object.body.slice(from..to) })
    }
}

struct Body {
    rest: Bytes,
}

impl ReadBody for Body {
    fn next(&mut self) -> Answer<'_, Option<Bytes>> {
        let len = self.rest.len().min(CHUNK_BYTES);
        let chunk = (len > 0).then(|| self.rest.split_to(len));
        Box::pin(std::future::ready(Ok(chunk)))
    }

    fn take_ready(&mut self) -> Option<Bytes> {
        (self.rest.len() <= CHUNK_BYTES).then(|| std::mem::take(&mut self.rest))
    }
}
