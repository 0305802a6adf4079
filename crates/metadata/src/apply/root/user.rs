//! Accounts in root.

use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::{Outcome, Refusal};
use crate::format::key;
use crate::format::value::Name;
use crate::read::root;
use types::account::Credential;

/// Name and access key are unique. The same account again is the same attempt again: done.
pub(super) fn create(work: &mut Work<'_>, user: &Credential) -> Decision {
    let name = &user.account.display_name;
    let by_name = root::user(&work.draft, name)?;
    if by_name.as_ref() == Some(user) {
        return Ok(Outcome::Done);
    }
    if by_name.is_some() || root::user_by_access_key(&work.draft, &user.access_key)?.is_some() {
        return Err(Refusal::UserExists.into());
    }
    work.draft.put(key::user(name), user);
    work.draft.put(key::access_key(&user.access_key), &Name(name.clone()));
    Ok(Outcome::Done)
}

pub(super) fn delete(work: &mut Work<'_>, name: &str) -> Decision {
    let user = root::user(&work.draft, name)?.ok_or(Refusal::NoSuchUser)?;
    for bucket in root::buckets(&work.draft) {
        if bucket?.owner == user.account.canonical_id {
            return Err(Refusal::UserHasBuckets.into());
        }
    }
    work.draft.remove(key::user(name));
    work.draft.remove(key::access_key(&user.access_key));
    Ok(Outcome::Done)
}
