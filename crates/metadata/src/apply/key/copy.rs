//! The destination's entry of a fast copy: here the copy takes effect (protocols.md 3, step 2).

use super::{Decision, Target};
use crate::apply::conditions::check_put;
use crate::apply::draft::Work;
use crate::apply::version::Newest;
use crate::command::{CopyData, NewVersion, Outcome, Refusal};
use crate::rows::{BodyId, DataRef, ManifestPart, Reference};
use types::object::PutConditions;

pub(super) fn copy(
    work: &mut Work<'_>,
    target: &Target<'_>,
    newest: Newest,
    object: &NewVersion,
    data: &CopyData,
    conditions: &PutConditions,
) -> Decision {
    check_put(conditions, &newest)?;
    let id = work.attempt;
    let data = match data {
        CopyData::One(reference) => {
            work.refer(target.at, BodyId::whole(id), reference)?;
            DataRef::Body(id)
        }
        CopyData::Parts(parts) => refer_to_parts(work, target, parts)?,
    };
    let outcome = work.insert_version(target.at, target.bucket, newest, object, data)?;
    Ok(Outcome::Put(outcome))
}

fn refer_to_parts(work: &mut Work<'_>, target: &Target<'_>, parts: &[(ManifestPart, Reference)]) -> Decision<DataRef> {
    let id = work.attempt;
    let numbered = parts.iter().zip(1..).all(|((part, _), least)| part.number >= least);
    let ascending = parts.windows(2).all(|pair| pair[0].0.number < pair[1].0.number);
    if parts.is_empty() || !numbered || !ascending {
        return Err(Refusal::Invalid("the parts of a copy are numbered from 1, ascending".into()).into());
    }
    let mut manifest = Vec::with_capacity(parts.len());
    for (part, reference) in parts {
        let part = ManifestPart { body: id, ..part.clone() };
        work.refer(target.at, part.body_id(id), reference)?;
        manifest.push(part);
    }
    let count = manifest.len() as u32;
    work.put_manifest(target.at, id, manifest);
    Ok(DataRef::Manifest { id, parts: count })
}
