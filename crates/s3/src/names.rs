//! Names of the headers that every request is asked for, made at compile time.
//!
//! A map that is asked by text reads, checks and hashes the text as if it came from the network, which costs more than the
//! look-up. Refuses to know: values.

use http::HeaderName;

macro_rules! names {
    ($($constant:ident = $text:literal;)*) => {
        $(#[doc = $text] pub const $constant: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    CONTENT_MD5 = "content-md5";
    X_AMZ_ACL = "x-amz-acl";
    X_AMZ_CHECKSUM_MODE = "x-amz-checksum-mode";
    X_AMZ_CONTENT_SHA256 = "x-amz-content-sha256";
    X_AMZ_COPY_SOURCE = "x-amz-copy-source";
    X_AMZ_DATE = "x-amz-date";
    X_AMZ_EXPECTED_BUCKET_OWNER = "x-amz-expected-bucket-owner";
    X_AMZ_ID_2 = "x-amz-id-2";
    X_AMZ_IF_MATCH_LAST_MODIFIED_TIME = "x-amz-if-match-last-modified-time";
    X_AMZ_IF_MATCH_SIZE = "x-amz-if-match-size";
    X_AMZ_REQUEST_ID = "x-amz-request-id";
    X_AMZ_SDK_CHECKSUM_ALGORITHM = "x-amz-sdk-checksum-algorithm";
    X_AMZ_SECURITY_TOKEN = "x-amz-security-token";
    X_AMZ_STORAGE_CLASS = "x-amz-storage-class";
    X_AMZ_TAGGING = "x-amz-tagging";
    X_AMZ_TRAILER = "x-amz-trailer";
    X_AMZ_WEBSITE_REDIRECT_LOCATION = "x-amz-website-redirect-location";
}
