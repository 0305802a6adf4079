//! After a restart: every key, every upload and the listing are compared with what the writers know.
//!
//! Promises: a difference is an error that names the key. Refuses to know: how the server recovered.

use std::collections::BTreeMap;

use super::model::KeyState;
use super::server::Server;
use super::writer::Writer;
use crate::BenchError;
use crate::client::{BodySink, Client, ClientError, PageRequest, Request, Response};

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    pub objects: u64,
    pub bytes: u64,
    pub unknown_that_happened: u64,
}

/// ETag and size of each object that must be listed.
type Listed = BTreeMap<String, (String, u64)>;

/// Compares everything; unknown outcomes are settled by what is found.
pub(super) async fn everything(writers: &mut [Writer], server: &Server, bucket: &str) -> Result<Checked, BenchError> {
    let mut client = Client::new(&server.target());
    let mut checked = Checked::default();
    let mut present = Listed::new();
    for writer in writers.iter_mut() {
        for (key, state) in &mut writer.keys {
            let found = fetch(&mut client, bucket, key).await?;
            settle(key, state, found.as_ref(), &mut checked)?;
            if let Some(response) = found {
                present.insert(key.clone(), (response.etag.unwrap_or_default(), response.received_bytes));
            }
        }
    }
    for version in writers.iter().flat_map(|writer| &writer.old) {
        let path = format!("/{bucket}/{}", version.key);
        let found = client.get_version(&path, &version.id, &version.object.expected).await;
        let found = found.map_err(|e| BenchError::Broken(format!("version {} of {}: {e}", version.id, version.key)))?;
        checked.objects += 1;
        checked.bytes += found.received_bytes;
    }
    compare_listing(&mut client, bucket, &present).await?;
    abort_uploads(&mut client, bucket).await?;
    Ok(checked)
}

async fn fetch(client: &mut Client, bucket: &str, key: &str) -> Result<Option<Response>, BenchError> {
    let request = Request { method: "GET", path: &format!("/{bucket}/{key}"), ..Request::default() };
    match client.call(&request, 200, BodySink::Keep).await {
        Ok(response) => Ok(Some(response)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(BenchError::Broken(format!("{key} cannot be read: {error}"))),
    }
}

fn settle(key: &str, state: &mut KeyState, found: Option<&Response>, checked: &mut Checked) -> Result<(), BenchError> {
    let before = state.describe();
    let Some(index) = state.settle(found.map(|response| response.body.as_slice())) else {
        let found = found.map_or("nothing".into(), |response| {
            format!("{} bytes with ETag {:?}", response.received_bytes, response.etag)
        });
        return Err(BenchError::Broken(format!("{key} must be {before}, but there is {found}")));
    };
    checked.unknown_that_happened += u64::from(index > 0);
    let Some(response) = found else { return Ok(()) };
    checked.objects += 1;
    checked.bytes += response.received_bytes;
    let expected = state.certain().and_then(Option::as_ref).and_then(|object| object.etag.as_ref());
    match expected {
        Some(etag) if response.etag.as_ref() != Some(etag) => {
            Err(BenchError::Broken(format!("{key} has ETag {:?} instead of {etag}", response.etag)))
        }
        _ => Ok(()),
    }
}

async fn compare_listing(client: &mut Client, bucket: &str, present: &Listed) -> Result<(), BenchError> {
    let mut listed = Listed::new();
    let mut token = None;
    loop {
        // Small pages, so that the walk crosses many borders.
        let request = PageRequest { prefix: "", delimiter: None, token: token.as_deref(), max_keys: 37 };
        let (_, page) = client.list(bucket, &request).await.map_err(BenchError::request("list"))?;
        for (key, etag, size) in page.objects {
            if listed.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(BenchError::Broken(format!("{key} is listed out of order or twice")));
            }
            listed.insert(key, (etag, size));
        }
        match page.next {
            Some(next) => token = Some(next),
            None => break,
        }
    }
    if listed == *present {
        return Ok(());
    }
    let differs = |(key, value): &(&String, &(String, u64))| listed.get(*key) != Some(*value);
    let missing = present.iter().find(differs).map(|(key, _)| key);
    let extra = listed.keys().find(|key| !present.contains_key(*key));
    Err(BenchError::Broken(format!("the listing differs: missing or other than read {missing:?}, extra {extra:?}")))
}

/// Uploads that nobody will complete are aborted, so that the audit counts their parts as garbage.
async fn abort_uploads(client: &mut Client, bucket: &str) -> Result<(), BenchError> {
    loop {
        let uploads = client.list_uploads(bucket).await.map_err(BenchError::request("list uploads"))?;
        if uploads.is_empty() {
            return Ok(());
        }
        for (key, upload) in uploads {
            match client.abort_upload(&format!("/{bucket}/{key}"), &upload).await {
                Ok(()) => {}
                Err(ClientError::Status { status: 404, .. }) => {
                    return Err(BenchError::Broken(format!("upload {upload} of {key} is listed but not there")));
                }
                Err(error) => {
                    return Err(BenchError::Request { what: format!("abort an upload of {key}"), source: error });
                }
            }
        }
    }
}
