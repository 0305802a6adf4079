//! Signature Version 4 in the Authorization header, from the client's side.
//!
//! Promises: the signature of AWS's published examples (tested). The derived key is kept for the day.
//! Refuses to know: connections; presigned and chunked forms, which a load generator does not send.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// SHA-256 of nothing.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Who asks.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Access key id.
    pub access_key: String,
    /// Secret access key.
    pub secret_key: String,
}

/// How the body enters the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadSigning {
    /// `UNSIGNED-PAYLOAD`: no hash of the body.
    Unsigned,
    /// The SHA-256 of the body.
    Sha256,
}

/// What is signed.
pub struct Parts<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Path, already percent-encoded as S3 wants it.
    pub path: &'a str,
    /// Query in canonical order, encoded.
    pub query: &'a str,
    /// Host header.
    pub host: &'a str,
    /// Further headers: lower-case names, trimmed values.
    pub headers: &'a [(&'a str, String)],
    /// The body; `None` for methods without one.
    pub body: Option<&'a [u8]>,
}

/// Signs for one account and region.
#[derive(Clone)]
pub struct Signer {
    credentials: Credentials,
    region: String,
    service: &'static str,
    payload: PayloadSigning,
    day: String,
    key: [u8; 32],
}

impl Signer {
    /// A signer for one account and region.
    pub fn new(credentials: Credentials, region: &str, payload: PayloadSigning) -> Signer {
        Signer { credentials, region: region.to_owned(), service: "s3", payload, day: String::new(), key: [0; 32] }
    }

    /// The same for another service than `s3`.
    pub fn for_service(self, service: &'static str) -> Signer {
        Signer { service, day: String::new(), ..self }
    }

    /// The three headers that authenticate the request, each line ended by CR LF. `date` is `YYYYMMDDTHHMMSSZ`.
    pub fn headers(&mut self, parts: &Parts<'_>, date: &str) -> String {
        let day = &date[..8];
        self.derive_key(day);
        let payload_hash = self.payload_hash(parts.body);
        let (canonical, names) = canonical_request(parts, date, &payload_hash);
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(canonical.as_bytes())));
        let signature = hex::encode(hmac(&self.key, to_sign.as_bytes()));
        format!(
            "x-amz-content-sha256: {payload_hash}\r\nx-amz-date: {date}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n",
            self.credentials.access_key
        )
    }

    fn derive_key(&mut self, day: &str) {
        if self.day != day {
            let key = hmac(format!("AWS4{}", self.credentials.secret_key).as_bytes(), day.as_bytes());
            let key = hmac(&key, self.region.as_bytes());
            let key = hmac(&key, self.service.as_bytes());
            self.key = hmac(&key, b"aws4_request");
            day.clone_into(&mut self.day);
        }
    }

    fn payload_hash(&self, body: Option<&[u8]>) -> String {
        match (body, self.payload) {
            (None | Some([]), _) => EMPTY_SHA256.to_owned(),
            (Some(_), PayloadSigning::Unsigned) => "UNSIGNED-PAYLOAD".to_owned(),
            (Some(body), PayloadSigning::Sha256) => hex::encode(Sha256::digest(body)),
        }
    }
}

fn canonical_request(parts: &Parts<'_>, date: &str, payload_hash: &str) -> (String, String) {
    let mut headers: Vec<(&str, &str)> =
        vec![("host", parts.host), ("x-amz-content-sha256", payload_hash), ("x-amz-date", date)];
    headers.extend(parts.headers.iter().map(|(name, value)| (*name, value.as_str())));
    headers.sort_unstable();
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n{}\n", parts.method, parts.path, parts.query);
    for (name, value) in &headers {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{payload_hash}");
    (canonical, names)
}

fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

/// Percent-encodes as Signature Version 4 asks: all but unreserved characters, and `/` in paths.
pub fn encode(text: &str, keep_slash: bool) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b'/' if keep_slash => out.push('/'),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Parts, PayloadSigning, Signer, encode};

    /// The example "GET Object" in AWS's page on header-based authentication.
    #[test]
    fn the_published_get_object_example_gets_the_published_signature() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
        };
        let mut signer = Signer::new(credentials, "us-east-1", PayloadSigning::Sha256);
        let parts = Parts {
            method: "GET",
            path: "/test.txt",
            query: "",
            host: "examplebucket.s3.amazonaws.com",
            headers: &[("range", "bytes=0-9".into())],
            body: None,
        };
        let headers = signer.headers(&parts, "20130524T000000Z");
        assert!(
            headers.contains("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\r\n"),
            "{headers}"
        );
    }

    #[test]
    fn only_unreserved_characters_stay_as_they_are() {
        assert_eq!(encode("a b/ü~", true), "a%20b/%C3%BC~");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
