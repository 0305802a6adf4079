//! Buckets in root. A bucket's id is never used again; its generation only grows.

use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::{Outcome, Refusal};
use crate::format::key;
use crate::format::value::Counter;
use crate::read::root;
use types::bucket::{BucketChange, BucketConfigs, BucketInfo, Durability, Versioning};
use types::{BucketId, BucketName};

pub(super) fn create(work: &mut Work<'_>, name: &BucketName, owner: &str, location: &str) -> Decision {
    if let Some(present) = root::bucket_by_name(&work.draft, name)? {
        return Err(Refusal::BucketExists(Box::new(present)).into());
    }
    let Counter(last) = work.draft.row(&key::bucket_counter())?.unwrap_or_default();
    let info = BucketInfo {
        id: BucketId(last + 1),
        name: name.clone(),
        owner: owner.to_owned(),
        created_ms: work.now_ms,
        generation: 1,
        versioning: Versioning::Off,
        location: location.to_owned(),
        configs: BucketConfigs::default(),
        durability: Durability::default(),
    };
    work.draft.put(key::bucket_counter(), &Counter(info.id.0));
    work.draft.put(key::bucket_name(name.as_str()), &Counter::from(info.id));
    Ok(put(work, info, true))
}

/// Writes the bucket; one that apply must know of anew is raising until it is in every shard.
fn put(work: &mut Work<'_>, info: BucketInfo, raise: bool) -> Outcome {
    if raise {
        work.draft.put(key::raising(info.id), &Counter(info.generation));
    }
    work.draft.put(key::bucket(info.id), &info);
    Outcome::Bucket(info)
}

fn get(work: &Work<'_>, bucket: BucketId) -> Decision<BucketInfo> {
    root::bucket(&work.draft, bucket)?.ok_or_else(|| Refusal::NoSuchBucket.into())
}

pub(super) fn change(work: &mut Work<'_>, bucket: BucketId, change: &BucketChange) -> Decision {
    let mut info = get(work, bucket)?;
    let configs = &mut info.configs;
    match change.clone() {
        BucketChange::Versioning(Versioning::Off) => {
            return Err(Refusal::Invalid("versioning never returns to off".into()).into());
        }
        BucketChange::Versioning(versioning) => {
            info.versioning = versioning;
            info.generation += 1;
            return Ok(put(work, info, true));
        }
        BucketChange::Tags(tags) => configs.tags = tags,
        BucketChange::Cors(cors) => configs.cors = cors,
        BucketChange::Policy(policy) => configs.policy = policy,
        BucketChange::Ownership(ownership) => configs.ownership = ownership,
        BucketChange::PublicAccessBlock(block) => configs.public_access_block = block,
        BucketChange::Durability(durability) => {
            durability.check().map_err(Refusal::Invalid)?;
            info.durability = durability;
        }
    }
    Ok(put(work, info, false))
}

pub(super) fn raise_generation(work: &mut Work<'_>, bucket: BucketId) -> Decision {
    let mut info = get(work, bucket)?;
    info.generation += 1;
    Ok(put(work, info, true))
}

pub(super) fn raised(work: &mut Work<'_>, bucket: BucketId, generation: u64) -> Decision {
    let row = key::raising(bucket);
    let raising = work.draft.row::<Counter>(&row)?;
    if raising.is_some_and(|Counter(wanted)| wanted <= generation) {
        work.draft.remove(row);
    }
    Ok(Outcome::Done)
}

pub(super) fn delete(work: &mut Work<'_>, bucket: BucketId, generation: u64) -> Decision {
    let info = get(work, bucket)?;
    if info.generation != generation {
        return Err(Refusal::Refetch.into());
    }
    work.draft.remove(key::bucket(bucket));
    work.draft.remove(key::bucket_name(info.name.as_str()));
    work.draft.remove(key::raising(bucket));
    Ok(Outcome::Done)
}
