//! CompleteMultipartUpload: one entry that consumes the upload (rule R42). Everything is decided from the part rows.

use super::{Decision, all_parts, digest, manifest_part, of_algorithm, open, remove_rows};
use crate::apply::conditions::check_put;
use crate::apply::draft::Work;
use crate::apply::key::Target;
use crate::apply::version::Newest;
use crate::command::{ListedPart, NewVersion, Outcome, Refusal};
use crate::read::upload;
use crate::rows::{CompletedUpload, DataRef, ManifestPart, PartRow, UploadRow};
use std::collections::BTreeMap;
use types::limits::{PART_MIN_BYTES, PART_NUMBER_MAX};
use types::object::PutConditions;
use types::{AttemptId, Checksum, ChecksumAlgorithm, ETag};

/// What the client asks.
pub(super) struct Asked<'a> {
    pub(super) upload: AttemptId,
    pub(super) parts: &'a [ListedPart],
    pub(super) checksum: Option<&'a (ChecksumAlgorithm, Vec<u8>)>,
    pub(super) size: Option<u64>,
}

pub(super) fn complete(
    work: &mut Work<'_>,
    target: &Target<'_>,
    newest: Newest,
    asked: &Asked<'_>,
    conditions: &PutConditions,
) -> Decision {
    let at = target.at;
    let parts_crc = digest::of_list(asked.parts);
    if let Some(done) = upload::completed(&work.draft, at.bucket, &at.key, asked.upload)? {
        let same = done.parts_crc == parts_crc;
        return if same { Ok(Outcome::Put(done.outcome)) } else { Err(Refusal::NoSuchUpload.into()) };
    }
    let upload = open(work, at, asked.upload)?;
    let mut parts = all_parts(work, at, asked.upload)?;
    remove_rows(work, at, asked.upload, parts.keys());
    let chosen = choose(asked, &mut parts)?;
    let object = assemble(&upload, &chosen)?;
    check_declared(asked, &object)?;
    check_put(conditions, &newest)?;
    let data = DataRef::Manifest { id: work.attempt, parts: chosen.len() as u32 };
    work.put_manifest(at, work.attempt, manifest(chosen));
    // The upload's id is no manifest's and no content's.
    let orphans = parts.into_iter().map(|(number, part)| manifest_part(number, 0, part)).collect();
    work.condemn_parts(at, asked.upload, orphans);
    let outcome = work.insert_version(at, target.bucket, newest, &object, data)?;
    let (attempt, completed_ms) = (work.attempt, work.now_ms);
    let done = CompletedUpload { parts_crc, attempt, outcome: outcome.clone(), completed_ms };
    work.remember_completed(at, asked.upload, &done);
    Ok(Outcome::Put(outcome))
}

/// Takes the listed parts out of those that are there.
fn choose(asked: &Asked<'_>, parts: &mut BTreeMap<u32, PartRow>) -> Result<Vec<(u32, PartRow)>, Refusal> {
    let ascending = asked.parts.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if asked.parts.is_empty() || asked.parts.len() > PART_NUMBER_MAX as usize || !ascending {
        return Err(Refusal::Invalid("the list of parts must not be empty and ascend".into()));
    }
    let mut chosen = Vec::with_capacity(asked.parts.len());
    for (number, etag, checksum) in asked.parts {
        let part = parts.remove(number).ok_or(Refusal::InvalidPart(*number))?;
        let same_checksum = match (checksum, &part.checksum) {
            (Some((algorithm, digest)), Some(known)) => known.algorithm == *algorithm && known.digest == *digest,
            _ => true,
        };
        if *etag != ETag::Md5(part.md5).to_string() || !same_checksum {
            return Err(Refusal::InvalidPart(*number));
        }
        chosen.push((*number, part));
    }
    let but_last = &chosen[..chosen.len() - 1];
    match but_last.iter().find(|(_, part)| part.size < PART_MIN_BYTES) {
        Some((number, part)) => Err(Refusal::PartTooSmall(*number, part.size)),
        None => Ok(chosen),
    }
}

/// The version but for its bytes.
fn assemble(upload: &UploadRow, chosen: &[(u32, PartRow)]) -> Result<NewVersion, Refusal> {
    let checksum = match upload.checksum {
        None => None,
        Some((algorithm, kind)) => {
            let mut parts = Vec::with_capacity(chosen.len());
            for (number, part) in chosen {
                let known = of_algorithm(part.checksum.as_ref(), algorithm);
                let missing = || Refusal::Invalid(format!("part {number} has no {} checksum", algorithm.name()));
                parts.push((known.ok_or_else(missing)?.digest.as_slice(), part.size));
            }
            Some(digest::of_parts(algorithm, kind, &parts)?)
        }
    };
    Ok(NewVersion {
        size: chosen.iter().map(|(_, part)| part.size).sum(),
        etag: digest::etag(chosen.iter().map(|(_, part)| &part.md5)),
        checksum,
        meta: upload.meta.clone(),
        tags: upload.tags.clone(),
    })
}

/// What the client knows of the whole must be what was computed; what cannot be compared is refused, never passed over.
fn check_declared(asked: &Asked<'_>, object: &NewVersion) -> Result<(), Refusal> {
    if asked.size.is_some_and(|size| size != object.size) {
        return Err(Refusal::BadDigest("the object has another size".into()));
    }
    let Some((algorithm, digest)) = asked.checksum else { return Ok(()) };
    match of_algorithm(object.checksum.as_ref(), *algorithm) {
        Some(Checksum { digest: known, .. }) if known == digest => Ok(()),
        Some(_) => Err(Refusal::BadDigest(format!("the {} of the object differs", algorithm.name()))),
        None => Err(Refusal::Invalid(format!("the upload was not created with {}", algorithm.name()))),
    }
}

fn manifest(chosen: Vec<(u32, PartRow)>) -> Vec<ManifestPart> {
    let mut offset = 0;
    let mut parts = Vec::with_capacity(chosen.len());
    for (number, part) in chosen {
        let size = part.size;
        parts.push(manifest_part(number, offset, part));
        offset += size;
    }
    parts
}
