//! The signature of a POST form: over the base64 of its policy, by SigV4 or (only here) SigV2.

use super::{Authenticator, Scope, date, format_amz_date};
use crate::error::{S3Code, S3Error, S3Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use object_controller::api::Credential;
use sha1::Sha1;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// What a form says of its signature.
#[derive(Clone, Copy, Debug)]
pub enum PostSignature<'a> {
    /// `x-amz-algorithm`, `x-amz-credential`, `x-amz-date`, `x-amz-signature`.
    V4 {
        /// Must be `AWS4-HMAC-SHA256`.
        algorithm: &'a str,
        /// `access key/date/region/service/aws4_request`.
        credential: &'a str,
        /// `20130524T000000Z`.
        date: &'a str,
        /// Hex.
        signature: &'a str,
    },
    /// `AWSAccessKeyId`, `signature`.
    V2 {
        /// Access key.
        access_key: &'a str,
        /// Base64 of an HMAC-SHA1.
        signature: &'a str,
    },
}

impl Authenticator {
    /// Verifies the signature of a form's policy (its base64, as sent). Its expiration is the policy's matter.
    pub fn authenticate_post(&self, signature: &PostSignature<'_>, policy: &str) -> S3Result<Arc<Credential>> {
        match *signature {
            PostSignature::V4 { algorithm, credential, date, signature } => {
                self.post_v4(algorithm, credential, date, signature, policy)
            }
            PostSignature::V2 { access_key, signature } => {
                let credential = self.credential(access_key)?;
                if bool::from(v2_signature(&credential.secret_key, policy).as_bytes().ct_eq(signature.as_bytes())) {
                    Ok(credential)
                } else {
                    Err(mismatch(access_key, policy, signature))
                }
            }
        }
    }

    fn post_v4(
        &self,
        algorithm: &str,
        credential: &str,
        date: &str,
        signature: &str,
        policy: &str,
    ) -> S3Result<Arc<Credential>> {
        let invalid = |name: &str, value: &str, why: &'static str| S3Error::invalid_argument(name, value, why);
        if algorithm != "AWS4-HMAC-SHA256" {
            return Err(invalid("x-amz-algorithm", algorithm, "The algorithm is not supported"));
        }
        let (access_key, scope) = Scope::of_credential(credential)
            .ok_or_else(|| invalid("x-amz-credential", credential, "The credential is malformed"))?;
        if scope.region != self.config.region || scope.service != self.config.service {
            return Err(invalid("x-amz-credential", credential, "The region or service is wrong")
                .extra("Region", self.config.region.as_str()));
        }
        let date_ms = date::parse_amz_date(date).ok_or_else(|| invalid("x-amz-date", date, "The date is malformed"))?;
        if !format_amz_date(date_ms).starts_with(scope.date) {
            return Err(invalid("x-amz-date", date, "The date does not fit the credential's"));
        }
        let found = self.credential(access_key)?;
        if self.keys.get(&found, &scope).verify(policy.as_bytes(), signature) {
            Ok(found)
        } else {
            Err(mismatch(access_key, policy, signature))
        }
    }
}

fn v2_signature(secret: &str, policy: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(policy.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn mismatch(access_key: &str, policy: &str, signature: &str) -> S3Error {
    S3Error::new(S3Code::SignatureDoesNotMatch)
        .extra("AWSAccessKeyId", access_key)
        .extra("StringToSign", policy)
        .extra("SignatureProvided", signature)
}
