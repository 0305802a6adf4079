//! PostObject: an upload by HTML form. Once the form is verified it is a PutObject by whoever signed it.

use crate::error::{S3Code, S3Error, S3Result};
use crate::ops::bucket::parse_tagging;
use crate::ops::{Service, headers};
use crate::policy::Action;
use crate::post_form::PostForm;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use http::{HeaderMap, StatusCode, header};
use object_controller::api::{NewObject, ObjectStore, PutConditions, PutObject, PutOutcome, StoreError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use types::{BucketName, ObjectKey, limits};

pub async fn post_object<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    let mut form = PostForm::read(&mut request, &service.authenticator).await?;
    let key = ObjectKey::new(&form.key)?;
    let access = service.access(&form.identity, &bucket);
    access.require_key(Action::PutObject, &key)?;
    let fields = form.headers()?;
    let object = object_of(&form, &fields)?;
    if !object.tags.is_empty() {
        access.require_key(Action::PutObjectTagging, &key)?;
    }
    form.body.check()?;
    let conditions = PutConditions::default();
    let put = PutObject { bucket: bucket.clone(), key: key.clone(), object, conditions, size_hint: None };
    let made = match service.store.put_object(put, &mut form.body).await {
        Ok(made) => made,
        Err(error) => {
            return Err(match (&error, form.body.failure()) {
                (StoreError::Body(_), Some(detailed)) => detailed.clone(),
                _ => error.into(),
            });
        }
    };
    Ok(answer(&form, &request, &bucket.name, &key, &made))
}

fn object_of(form: &PostForm, fields: &HeaderMap) -> S3Result<NewObject> {
    let mut object = headers::new_object(fields)?;
    if let Some(document) = form.field("tagging") {
        if fields.contains_key("x-amz-tagging") {
            return Err(S3Error::with(S3Code::InvalidArgument, "Tags can be given only once"));
        }
        object.tags = parse_tagging(document.as_bytes(), limits::OBJECT_TAGS_MAX)?;
    }
    Ok(object)
}

/// A redirect if the form asks for one, else the status it asks for, else 204.
fn answer(form: &PostForm, request: &S3Request, bucket: &BucketName, key: &ObjectKey, made: &PutOutcome) -> S3Response {
    let redirect = form.field("success_action_redirect").or_else(|| form.field("redirect"));
    let host = request.header("host").unwrap_or_default();
    let path = utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC).to_string();
    let location =
        if request.virtual_host { format!("http://{host}/{path}") } else { format!("http://{host}/{bucket}/{path}") };
    let mut response =
        match (redirect.and_then(|to| redirection(to, bucket, key, made)), form.field("success_action_status")) {
            (Some(to), _) => {
                let mut response = S3Response::status(StatusCode::SEE_OTHER);
                response.set(header::LOCATION, &to);
                response
            }
            (None, Some("201")) => {
                let mut w = XmlWriter::plain("PostResponse");
                w.text("Location", &location);
                w.text("Bucket", bucket.as_str());
                w.text("Key", key.as_str());
                w.etag("ETag", &made.etag);
                let mut response = S3Response::xml(w.finish());
                response.status = StatusCode::CREATED;
                response.set(header::LOCATION, &location);
                response
            }
            (None, status) => {
                let mut response = if status == Some("200") { S3Response::ok() } else { S3Response::no_content() };
                response.set(header::LOCATION, &location);
                response
            }
        };
    headers::set_etag(&mut response, &made.etag);
    headers::set_new_version(&mut response, made.version);
    headers::set_checksum(&mut response, made.checksum.as_ref());
    response
}

/// The address asked for, with what was made behind it; one that is no address is ignored, as by AWS.
fn redirection(to: &str, bucket: &BucketName, key: &ObjectKey, made: &PutOutcome) -> Option<String> {
    let address: http::Uri = to.parse().ok()?;
    address.host()?;
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let separator = if address.query().is_some() { '&' } else { '?' };
    let etag = encoded(&format!("\"{}\"", made.etag));
    Some(format!("{to}{separator}bucket={bucket}&key={}&etag={etag}", encoded(key.as_str())))
}
