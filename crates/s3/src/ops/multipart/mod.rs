//! Multipart uploads.

mod abort;
mod complete;
mod create;
mod list_parts;
mod part;
mod part_copy;

pub use abort::abort_upload;
pub use complete::complete_upload;
pub use create::create_upload;
pub use list_parts::list_parts;
pub use part::upload_part;
pub use part_copy::upload_part_copy;

use crate::error::{S3Code, S3Error, S3Result};
use crate::request::S3Request;
use object_controller::api::UploadId;
use types::limits::PART_NUMBER_MAX;

/// `uploadId`; what is none of ours names no upload.
fn upload_of(request: &S3Request) -> S3Result<UploadId> {
    let text = request.query.get("uploadId").unwrap_or_default();
    text.parse().map_err(|_| S3Error::new(S3Code::NoSuchUpload).extra("UploadId", text))
}

/// `partNumber`, 1 to 10,000.
fn part_number_of(request: &S3Request) -> S3Result<u32> {
    let text = request.query.get("partNumber").unwrap_or_default();
    let number = text.parse().ok().filter(|n| (1..=PART_NUMBER_MAX).contains(n));
    number.ok_or_else(|| {
        S3Error::invalid_argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })
}
