//! Uploads by HTML form: multipart/form-data with a signed policy.
//!
//! Promises: fields are bounded, the file streams and is digested as any upload; a form with a policy is accepted only if its
//! signature holds, every condition holds, and every field is covered. The bucket is the URL's, whatever a field says.
//! Refuses to know: whether the identity may write.

mod disposition;
mod multipart;
mod policy;
#[cfg(test)]
mod tests;

pub use multipart::FormFile;

use crate::auth::{Authenticator, PostSignature};
use crate::body::{Expectations, RequestBody, Source};
use crate::error::{S3Code, S3Error, S3Result};
use crate::request::{AuthenticationKind, Identity, S3Request};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use multipart::FormReader;
use policy::Policy;

/// A verified form, its file not read yet.
pub struct PostForm {
    /// Fields before the file: names in lower case, each once, in order.
    pub fields: Vec<(String, String)>,
    /// The key, `${filename}` replaced. Not empty.
    pub key: String,
    /// Whose signature the form carries.
    pub identity: Identity,
    /// `PostForm`, or `None` for a form without a policy.
    pub authentication: AuthenticationKind,
    /// The file.
    pub body: RequestBody,
}

impl PostForm {
    /// Reads the form of `request` up to its file and verifies it. The request's body is taken.
    pub async fn read(request: &mut S3Request, authenticator: &Authenticator) -> S3Result<Self> {
        match request.authentication {
            AuthenticationKind::None => {}
            AuthenticationKind::Header | AuthenticationKind::Presigned | AuthenticationKind::PostForm => {
                return Err(S3Error::with(S3Code::InvalidArgument, "Only one auth mechanism allowed"));
            }
        }
        let bucket = request.bucket_name()?.as_str().to_owned();
        let content_type = request.header(header::CONTENT_TYPE.as_str()).unwrap_or("");
        let boundary = disposition::boundary(content_type)?;
        let body = std::mem::replace(&mut request.body, RequestBody::empty());
        let lanes = body.lanes();
        let reader = FormReader::new(body.into_source()?, &boundary);
        let (fields, file) = reader.read_fields().await?;
        let form = Self::verify(fields, file, &bucket, authenticator)?;
        Ok(PostForm { body: form.body.sharing(lanes), ..form })
    }

    fn verify(
        mut fields: Vec<(String, String)>,
        file: FormFile,
        bucket: &str,
        authenticator: &Authenticator,
    ) -> S3Result<Self> {
        if let Some((_, key)) = fields.iter_mut().find(|(n, _)| n == "key") {
            *key = key.replace("${filename}", file.base_name());
        }
        let (identity, size_range) = match signature_of(&fields)? {
            None => (Identity::Anonymous, None),
            Some((signature, document)) => {
                let credential = authenticator.authenticate_post(&signature, document)?;
                let policy = Policy::parse(document)?;
                policy.check_expiration(authenticator.now_ms())?;
                policy.check_fields(&fields, bucket)?;
                (Identity::Account(credential), policy.size_range())
            }
        };
        if get(&fields, "bucket").is_some_and(|b| b != bucket) {
            return Err(S3Error::with(S3Code::AccessDenied, "The bucket field does not name the bucket of the URL"));
        }
        let key = get(&fields, "key").filter(|k| !k.is_empty());
        let key = key.ok_or_else(|| S3Error::new(S3Code::UserKeyMustBeSpecified))?.to_owned();
        let expectations = Expectations::of_form(&headers_of(&fields)?, size_range);
        let authentication = match &identity {
            Identity::Anonymous => AuthenticationKind::None,
            Identity::Account(_) => AuthenticationKind::PostForm,
        };
        let body = RequestBody::new(Source::form(file), expectations, None);
        Ok(PostForm { fields, key, identity, authentication, body })
    }

    /// The field of that lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        get(&self.fields, name)
    }

    /// The fields that are headers of an upload (`Content-Type`, `x-amz-meta-…`, …), as such; `acl` is `x-amz-acl`.
    pub fn headers(&self) -> S3Result<HeaderMap> {
        headers_of(&self.fields)
    }
}

fn get<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

/// The signature and the policy it is of. None of their fields at all: an anonymous form. Some but not all: 400.
fn signature_of(fields: &[(String, String)]) -> S3Result<Option<(PostSignature<'_>, &str)>> {
    let policy = get(fields, "policy");
    let v4 = ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"].map(|n| get(fields, n));
    let v2 = ["awsaccesskeyid", "signature"].map(|n| get(fields, n));
    let missing = || {
        S3Error::with(S3Code::InvalidArgument, "A form with credentials needs a policy and all fields of its signature")
    };
    match (policy, v4, v2) {
        (None, [None, None, None, None], [None, None]) => Ok(None),
        (Some(policy), [Some(algorithm), Some(credential), Some(date), Some(signature)], [None, None]) => {
            Ok(Some((PostSignature::V4 { algorithm, credential, date, signature }, policy)))
        }
        (Some(policy), [None, None, None, None], [Some(access_key), Some(signature)]) => {
            Ok(Some((PostSignature::V2 { access_key, signature }, policy)))
        }
        _ => Err(missing()),
    }
}

fn headers_of(fields: &[(String, String)]) -> S3Result<HeaderMap> {
    const SYSTEM: [&str; 6] =
        ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"];
    const NOT_HEADERS: [&str; 4] = ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"];
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = match name.as_str() {
            "acl" => "x-amz-acl",
            "content-md5" => "content-md5",
            n if SYSTEM.contains(&n) => n,
            n if n.starts_with("x-amz-") && !NOT_HEADERS.contains(&n) => n,
            _ => continue,
        };
        let bad = || S3Error::invalid_argument(name, value.as_str(), "The field is not valid as a header");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        map.insert(header, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?);
    }
    Ok(map)
}
