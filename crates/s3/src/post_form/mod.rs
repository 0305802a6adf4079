//! Uploads by HTML form: multipart/form-data with a signed policy.
//!
//! Promises: fields are bounded; the file streams; nothing that the policy does not cover gets in. The bucket is the URL's.
