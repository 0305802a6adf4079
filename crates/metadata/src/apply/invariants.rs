//! What must be true of the rows after every entry. For tests: it holds the rows of a whole range in memory.

use crate::format::family;
use crate::read::{ReadError, content, get, object, root, upload};
use crate::rows::{BodyId, BodyRow, Condemned, DataRef, Home, VersionRow};
use crate::shard::KeyRange;
use crate::tree::Read;
use std::collections::{BTreeMap, BTreeSet};
use types::AttemptId;
use types::cluster::NodeState;

/// A manifest row: index of its first part; body and size of each.
type Chunk = (u32, Vec<(BodyId, u64)>);

/// Everything of one (bucket, key).
#[derive(Default)]
struct OfKey {
    current: Option<VersionRow>,
    others: Vec<VersionRow>,
    bodies: BTreeMap<BodyId, BodyRow>,
    owners: BTreeMap<AttemptId, BTreeSet<AttemptId>>,
    condemned: BTreeMap<AttemptId, Condemned>,
    manifests: BTreeMap<AttemptId, Vec<Chunk>>,
    uploads: BTreeSet<AttemptId>,
    parts: Vec<(AttemptId, AttemptId)>,
}

/// Every sentence that is not true of `range`; empty if all is well.
pub fn check_invariants(read: &dyn Read, range: &KeyRange) -> Result<Vec<String>, ReadError> {
    let keys = gather(read, range)?;
    let mut wrong = Vec::new();
    for (home, of) in &keys {
        let mut say = |what: String| wrong.push(format!("{}/{}: {what}", home.bucket, home.key));
        check_versions(read, home, of, &mut say)?;
        check_bodies(of, &mut say);
        check_manifests(of, &mut say);
        check_owners(of, &mut say);
    }
    check_root(read, &mut wrong)?;
    Ok(wrong)
}

fn gather(read: &dyn Read, range: &KeyRange) -> Result<BTreeMap<Home, OfKey>, ReadError> {
    let mut keys: BTreeMap<Home, OfKey> = BTreeMap::new();
    for row in object::of_family(read, family::CURRENT, range) {
        let (home, version) = row?;
        keys.entry(home).or_default().current = Some(version);
    }
    for row in object::of_family(read, family::VERSIONS, range) {
        let (home, version) = row?;
        keys.entry(home).or_default().others.push(version);
    }
    for row in content::bodies(read, range) {
        let (home, id, body) = row?;
        keys.entry(home).or_default().bodies.insert(id, body);
    }
    for row in content::all_owners(read, range) {
        let (home, id, owner, _) = row?;
        keys.entry(home).or_default().owners.entry(id).or_default().insert(owner);
    }
    for row in content::condemned(read, range, None) {
        let (home, id, condemned) = row?;
        keys.entry(home).or_default().condemned.insert(id, condemned.what);
    }
    for row in content::manifests(read, range) {
        let (home, id, first, chunk) = row?;
        let parts = chunk.parts.iter().map(|p| (p.body_id(id), p.size)).collect();
        keys.entry(home).or_default().manifests.entry(id).or_default().push((first, parts));
    }
    for row in upload::all(read, range) {
        let (home, id, _) = row?;
        keys.entry(home).or_default().uploads.insert(id);
    }
    for row in upload::all_parts(read, range) {
        let (home, id, _, part) = row?;
        keys.entry(home).or_default().parts.push((id, part.body));
    }
    Ok(keys)
}

fn check_versions(read: &dyn Read, home: &Home, of: &OfKey, say: &mut dyn FnMut(String)) -> Result<(), ReadError> {
    let newest_other = of.others.first();
    match (&of.current, newest_other) {
        (Some(current), Some(other)) if current.sequence <= other.sequence => say("current is not the newest".into()),
        (Some(current), _) if current.object.is_none() => say("current is a delete marker".into()),
        (None, Some(other)) if other.object.is_some() => say("the newest version is live and not current".into()),
        _ => {}
    }
    let nulls: Vec<_> = of.others.iter().filter(|v| v.null).map(|v| v.sequence).collect();
    let pointer = get::<crate::format::value::Counter>(read, &crate::format::key::null(home.bucket, &home.key))?;
    if pointer.map(|p| p.0).as_slice() != nulls {
        say("the null pointer names another version".into());
    }
    if nulls.len() + usize::from(of.current.as_ref().is_some_and(|c| c.null)) > 1 {
        say("two null versions".into());
    }
    let times: Vec<_> = of.current.iter().chain(&of.others).map(|v| v.modified_ms).collect();
    if !times.windows(2).all(|pair| pair[0] > pair[1]) {
        say("times do not grow with the sequence".into());
    }
    Ok(())
}

/// Body ids that versions, parts and manifests (also condemned ones) name.
fn named(of: &OfKey) -> Vec<BodyId> {
    let versions = of.current.iter().chain(&of.others).filter_map(|v| v.object.as_ref());
    let mut named: Vec<_> = versions
        .filter_map(|o| match o.data {
            DataRef::Body(id) => Some(BodyId::whole(id)),
            DataRef::Manifest { .. } => None,
        })
        .collect();
    named.extend(of.parts.iter().map(|(_, body)| BodyId::whole(*body)));
    named.extend(of.manifests.values().flatten().flat_map(|(_, parts)| parts.iter().map(|(id, _)| *id)));
    named
}

fn check_bodies(of: &OfKey, say: &mut dyn FnMut(String)) {
    let named_list = named(of);
    let named: BTreeSet<_> = named_list.iter().copied().collect();
    if named.len() != named_list.len() {
        say("a body is named twice".into());
    }
    for id in &named {
        if !of.bodies.contains_key(id) {
            say(format!("body {id:?} is named and missing"));
        }
    }
    for (id, body) in &of.bodies {
        let is_condemned = of.condemned.get(&id.id) == Some(&Condemned::Content);
        match body {
            BodyRow::Reference(_) if !named.contains(id) => say(format!("reference {id:?} is named by nothing")),
            BodyRow::Reference(_) => {}
            BodyRow::Content { .. } => {
                let owners = of.owners.get(&id.id);
                let let_go = owners.is_some_and(|o| o.contains(&id.id));
                let others = owners.is_some_and(|o| o.iter().any(|owner| *owner != id.id));
                if named.contains(id) && (let_go || is_condemned) {
                    say(format!("content {id:?} is named by its writer and let go"));
                }
                let is_owned = named.contains(id) || (let_go && others);
                if !is_owned && !is_condemned {
                    say(format!("content {id:?} is neither owned nor condemned"));
                }
                if is_condemned && owners.is_some() {
                    say(format!("content {id:?} is condemned and has owner rows"));
                }
            }
        }
    }
}

fn check_manifests(of: &OfKey, say: &mut dyn FnMut(String)) {
    let versions = of.current.iter().chain(&of.others).filter_map(|v| v.object.as_ref());
    let live: BTreeMap<_, _> = versions
        .filter_map(|o| match o.data {
            DataRef::Manifest { id, parts } => Some((id, (parts, o.size))),
            DataRef::Body(_) => None,
        })
        .collect();
    for (id, (parts, size)) in &live {
        let chunks = of.manifests.get(id).map(Vec::as_slice).unwrap_or_default();
        let count: usize = chunks.iter().map(|(_, parts)| parts.len()).sum();
        let bytes: u64 = chunks.iter().flat_map(|(_, parts)| parts).map(|(_, size)| size).sum();
        if (count, bytes) != (*parts as usize, *size) || of.condemned.contains_key(id) {
            say(format!("manifest {id} is not that of its version"));
        }
    }
    for id in of.manifests.keys() {
        if !live.contains_key(id) && !matches!(of.condemned.get(id), Some(Condemned::Manifest { .. })) {
            say(format!("manifest {id} belongs to nothing"));
        }
    }
    for (id, what) in &of.condemned {
        let there = match what {
            Condemned::Content => of.bodies.contains_key(&BodyId::whole(*id)),
            Condemned::Manifest { .. } => of.manifests.contains_key(id),
        };
        if !there {
            say(format!("condemned {id} is not there"));
        }
    }
    for (upload, _) in of.parts.iter().filter(|(upload, _)| !of.uploads.contains(upload)) {
        say(format!("a part without its upload {upload}"));
    }
}

fn check_owners(of: &OfKey, say: &mut dyn FnMut(String)) {
    for id in of.owners.keys() {
        match of.bodies.get(&BodyId::whole(*id)) {
            Some(BodyRow::Content { .. }) => {}
            _ => say(format!("owner rows of {id} without the content")),
        }
    }
}

fn check_root(read: &dyn Read, wrong: &mut Vec<String>) -> Result<(), ReadError> {
    for bucket in root::buckets(read) {
        let bucket = bucket?;
        if root::bucket_by_name(read, &bucket.name)?.map(|b| b.id) != Some(bucket.id) {
            wrong.push(format!("bucket {} is not found by its name", bucket.id));
        }
    }
    check_map(read, wrong)?;
    check_strips(read, wrong)?;
    for user in root::users(read) {
        let user = user?;
        if root::user_by_access_key(read, &user.access_key)?.as_ref() != Some(&user) {
            wrong.push(format!("user {} is not found by the access key", user.account.display_name));
        }
    }
    Ok(())
}

/// A strip and its groups name each other.
fn check_strips(read: &dyn Read, wrong: &mut Vec<String>) -> Result<(), ReadError> {
    let mut members = BTreeSet::new();
    for row in root::strips(read) {
        let (id, strip) = row?;
        for (place, group) in strip.groups().enumerate() {
            let record = root::group(read, group)?;
            let named = record.and_then(|record| record.strip).map(|of| (of.strip, usize::from(of.place)));
            if named != Some((id, place)) || !members.insert(group) {
                wrong.push(format!("group {group} is not the member {place} of strip {id} that it should be"));
            }
        }
    }
    for row in root::groups(read) {
        let (group, record) = row?;
        if record.strip.is_some() && !members.contains(&group) {
            wrong.push(format!("group {group} names a strip that does not know it"));
        }
    }
    Ok(())
}

fn check_map(read: &dyn Read, wrong: &mut Vec<String>) -> Result<(), ReadError> {
    let Some(map) = root::map(read)? else { return Ok(()) };
    let last = root::cluster(read)?.map_or(0, |head| head.last_node);
    let mut keys = BTreeSet::new();
    for node in map.nodes.values() {
        if !keys.insert(node.key) || node.id > last {
            wrong.push(format!("node {} has another's key or an id that was not given", node.id));
        }
    }
    for disk in map.disks.values() {
        let owner = map.nodes.get(&disk.node).map(|node| node.state);
        if owner.is_none() || (owner == Some(NodeState::Removed) && disk.state.is_here()) {
            wrong.push(format!("disk {} is in service on a node that is not", disk.id));
        }
    }
    if map.members().next().is_none() {
        wrong.push("the cluster has no node".to_owned());
    }
    Ok(())
}
