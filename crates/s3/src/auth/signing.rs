//! The HMAC chain of SigV4: keys, strings to sign, chunk and trailer signatures.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// `date/region/service/aws4_request`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope<'a> {
    /// `20130524`.
    pub date: &'a str,
    /// Region.
    pub region: &'a str,
    /// Service.
    pub service: &'a str,
}

impl<'a> Scope<'a> {
    /// Splits `access key/date/region/service/aws4_request`; an access key may hold slashes.
    pub fn of_credential(credential: &'a str) -> Option<(&'a str, Self)> {
        let (rest, end) = cut_last(credential)?;
        let (rest, service) = cut_last(rest)?;
        let (rest, region) = cut_last(rest)?;
        let (access_key, date) = cut_last(rest)?;
        let date_ok = date.len() == 8 && date.bytes().all(|c| c.is_ascii_digit());
        let ok = end == "aws4_request" && date_ok && !access_key.is_empty();
        ok.then_some((access_key, Scope { date, region, service }))
    }
}

/// Before and after the last slash.
fn cut_last(text: &str) -> Option<(&str, &str)> {
    let at = memchr::memrchr(b'/', text.as_bytes())?;
    Some((&text[..at], &text[at + 1..]))
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/aws4_request", self.date, self.region, self.service)
    }
}

/// A key derived for one scope, with its two blocks hashed already. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length")
}

pub(super) fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = keyed(key);
    mac.update(data);
    mac.finalize().into_bytes().into()
}

impl SigningKey {
    /// Derives it.
    pub fn derive(secret: &str, scope: &Scope<'_>) -> Self {
        let first = hmac(format!("AWS4{secret}").as_bytes(), scope.date.as_bytes());
        let region = hmac(&first, scope.region.as_bytes());
        let service = hmac(&region, scope.service.as_bytes());
        SigningKey(keyed(&hmac(&service, b"aws4_request")))
    }

    /// The signature of `text`, hex.
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        let mut mac = self.0.clone();
        mac.update(text);
        hex_of(&mac.finalize().into_bytes().into())
    }

    /// Whether `signature` is the one of `text`, in constant time.
    pub fn verify(&self, text: &[u8], signature: &str) -> bool {
        self.sign(text).ct_eq(signature.as_bytes()).into()
    }
}

pub(super) fn hex_of(digest: &[u8; 32]) -> [u8; 64] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 64];
    for at in 0..32 {
        let byte = usize::from(digest[at]);
        (out[2 * at], out[2 * at + 1]) = (HEX[byte >> 4], HEX[byte & 15]);
    }
    out
}

fn text_of(hex: &[u8; 64]) -> &str {
    std::str::from_utf8(hex).expect("hex digits are ASCII")
}

/// The string that the head's signature is of.
pub fn string_to_sign(timestamp: &str, scope: &Scope<'_>, canonical: &[u8]) -> String {
    let digest = hex_of(&Sha256::digest(canonical).into());
    let Scope { date, region, service } = scope;
    ["AWS4-HMAC-SHA256\n", timestamp, "\n", date, "/", region, "/", service, "/aws4_request\n", text_of(&digest)]
        .concat()
}

/// SHA-256 of nothing.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Verifies the chain of chunk signatures that begins with the head's.
pub struct ChunkSigner {
    key: SigningKey,
    /// `timestamp\nscope\n`.
    prefix: String,
    previous: [u8; 64],
    chunk: Sha256,
}

impl fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkSigner")
    }
}

impl ChunkSigner {
    /// Begins with the (verified) signature of the head.
    pub fn new(key: SigningKey, timestamp: &str, scope: &Scope<'_>, seed: &str) -> Self {
        let previous = seed.as_bytes().try_into().unwrap_or([b'0'; 64]);
        ChunkSigner { key, prefix: format!("{timestamp}\n{scope}\n"), previous, chunk: Sha256::new() }
    }

    /// Takes data of the present chunk.
    pub fn update(&mut self, data: &[u8]) {
        self.chunk.update(data);
    }

    /// Ends the present chunk: whether `given` is its signature.
    pub fn verify_chunk(&mut self, given: &[u8; 64]) -> bool {
        let digest = hex_of(&std::mem::take(&mut self.chunk).finalize().into());
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}{}\n{EMPTY_SHA256}\n{}",
            self.prefix,
            text_of(&self.previous),
            text_of(&digest)
        );
        self.advance(&text, given)
    }

    /// Whether `given` is the signature of the trailers.
    pub fn verify_trailers(&mut self, trailers: &[(String, String)], given: &[u8; 64]) -> bool {
        let mut hash = Sha256::new();
        for (name, value) in trailers {
            hash.update(name.as_bytes());
            hash.update(b":");
            hash.update(value.as_bytes());
            hash.update(b"\n");
        }
        let digest = hex_of(&hash.finalize().into());
        let text =
            format!("AWS4-HMAC-SHA256-TRAILER\n{}{}\n{}", self.prefix, text_of(&self.previous), text_of(&digest));
        self.advance(&text, given)
    }

    fn advance(&mut self, text: &str, given: &[u8; 64]) -> bool {
        self.previous = self.key.sign(text.as_bytes());
        self.previous.ct_eq(given).into()
    }
}
