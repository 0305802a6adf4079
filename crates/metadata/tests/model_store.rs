//! Apply against a model in plain maps: any sequence of puts, deletes, versions, uploads and fast copies over one or three
//! shards leaves the versions that the model has, and reclaiming takes only garbage, in the end all of it.
#![allow(clippy::panic)]

mod model_support;

use metadata::command::{Condition, CopyData, KeyOp, Outcome, PartBytes, Refusal, ShardCommand};
use metadata::list::{ListVersions, versions};
use metadata::read::object::{Lookup, lookup};
use metadata::read::{content, upload};
use metadata::rows::{BodyId, ManifestPart, Reference};
use metadata::shard::KeyRange;
use model_support::{
    BUCKET, CONTENT_BYTES, Piece, Store, etag_text, home, key, made, md5_of, new_version, part_op, put_op,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::bucket::Versioning;
use types::object::{ObjectMeta, PutConditions};
use types::{AttemptId, VersionId};

const KEYS: [&str; 4] = ["a", "a/b", "b", "zz"];

#[derive(Clone, Debug)]
enum Op {
    Put { key: usize, must_not_exist: bool },
    PutInline { key: usize },
    Delete { key: usize },
    DeleteVersion { key: usize, nth: usize },
    Copy { from: usize, nth: usize, to: usize, must_not_exist: bool },
    Create { key: usize },
    Part { upload: usize, number: u32 },
    CopyPart { upload: usize, number: u32, from: usize, nth: usize },
    Complete { upload: usize, but: u32 },
    Abort { upload: usize },
    Versioning(bool),
    Abandon { key: usize },
    Expand(usize),
    Reclaim(usize),
    Deliver(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..KEYS.len();
    let op = prop_oneof![
        4 => (key.clone(), any::<bool>()).prop_map(|(key, must_not_exist)| Op::Put { key, must_not_exist }),
        1 => key.clone().prop_map(|key| Op::PutInline { key }),
        2 => key.clone().prop_map(|key| Op::Delete { key }),
        3 => (key.clone(), 0..4usize).prop_map(|(key, nth)| Op::DeleteVersion { key, nth }),
        6 => (key.clone(), 0..3usize, key.clone(), prop::bool::weighted(0.2))
            .prop_map(|(from, nth, to, must_not_exist)| Op::Copy { from, nth, to, must_not_exist }),
        2 => key.clone().prop_map(|key| Op::Create { key }),
        4 => (0..3usize, 1..4u32).prop_map(|(upload, number)| Op::Part { upload, number }),
        3 => (0..3usize, 1..4u32, key.clone(), 0..3usize)
            .prop_map(|(upload, number, from, nth)| Op::CopyPart { upload, number, from, nth }),
        2 => (0..3usize, 0..4u32).prop_map(|(upload, but)| Op::Complete { upload, but }),
        1 => (0..3usize).prop_map(|upload| Op::Abort { upload }),
        1 => any::<bool>().prop_map(Op::Versioning),
        1 => key.prop_map(|key| Op::Abandon { key }),
        2 => (0..3usize).prop_map(Op::Expand),
        2 => (0..3usize).prop_map(Op::Reclaim),
        2 => (0..3usize).prop_map(Op::Deliver),
    ];
    prop::collection::vec(op, 1..40)
}

/// A version as the model knows it, newest first in its key.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    id: VersionId,
    /// `None`: a delete marker.
    pieces: Option<Vec<Piece>>,
    multipart: bool,
}

/// Attempt and bytes of each part by number.
type Parts = BTreeMap<u32, (AttemptId, Piece)>;

#[derive(Default)]
struct Model {
    keys: BTreeMap<&'static str, Vec<Version>>,
    uploads: Vec<(AttemptId, &'static str, Parts)>,
}

impl Model {
    fn push(&mut self, key: &'static str, version: Version) {
        let versions = self.keys.entry(key).or_default();
        if version.id == VersionId::Null {
            versions.retain(|v| v.id != VersionId::Null);
        }
        versions.insert(0, version);
    }

    fn live(&self, key: &str) -> bool {
        self.keys.get(key).and_then(|v| v.first()).is_some_and(|v| v.pieces.is_some())
    }

    /// Contents that something still needs.
    fn reachable(&self) -> BTreeSet<AttemptId> {
        let versions = self.keys.values().flatten().filter_map(|v| v.pieces.as_ref()).flatten();
        let parts = self.uploads.iter().flat_map(|(_, _, parts)| parts.values().map(|(_, piece)| piece));
        versions.chain(parts).filter_map(content_of).collect()
    }
}

fn content_of(piece: &Piece) -> Option<AttemptId> {
    match piece {
        Piece::Content(_, id) => Some(*id),
        Piece::Inline(_) => None,
    }
}

struct Run {
    store: Store,
    model: Model,
    versioning: Versioning,
}

impl Run {
    fn new(cuts: &[&str]) -> Self {
        Run { store: Store::cut(cuts), model: Model::default(), versioning: Versioning::Off }
    }

    fn id(&self, shown: Option<VersionId>) -> VersionId {
        assert_eq!(shown.is_none(), self.versioning == Versioning::Off);
        shown.unwrap_or(VersionId::Null)
    }

    fn conditions(must_not_exist: bool) -> PutConditions {
        PutConditions { must_not_exist, if_match: None }
    }

    /// Whether the write was made; a refusal must be the condition's.
    fn took(
        &mut self,
        key: &'static str,
        must_not_exist: bool,
        outcome: Outcome,
        pieces: Vec<Piece>,
        multipart: bool,
    ) -> bool {
        if must_not_exist && self.model.live(key) {
            assert_eq!(outcome, Outcome::Refused(Refusal::Precondition(Condition::IfNoneMatch)));
            return false;
        }
        let id = self.id(made(outcome).version);
        self.model.push(key, Version { id, pieces: Some(pieces), multipart });
        true
    }

    fn step(&mut self, op: &Op) {
        match op.clone() {
            Op::Put { key, must_not_exist } => {
                let (id, outcome) = self.store.put_if(KEYS[key], Self::conditions(must_not_exist));
                let piece = Piece::Content(KEYS[key].to_owned(), id);
                self.took(KEYS[key], must_not_exist, outcome, vec![piece], false);
            }
            Op::PutInline { key } => {
                let put = self.store.put_inline(KEYS[key], b"inline");
                let id = self.id(put.version);
                let pieces = Some(vec![Piece::Inline(bytes::Bytes::from_static(b"inline"))]);
                self.model.push(KEYS[key], Version { id, pieces, multipart: false });
            }
            Op::Delete { key } => self.delete(KEYS[key]),
            Op::DeleteVersion { key, nth } => self.delete_version(KEYS[key], nth),
            Op::Copy { from, nth, to, must_not_exist } => self.copy(KEYS[from], nth, KEYS[to], must_not_exist),
            Op::Create { key } => {
                let id = self.store.attempt();
                let op = KeyOp::CreateUpload { meta: ObjectMeta::default(), tags: vec![], checksum: None };
                assert_eq!(self.store.key_as(id, KEYS[key], op), Outcome::Done);
                self.model.uploads.push((id, KEYS[key], BTreeMap::new()));
            }
            Op::Part { upload, number } => {
                let Some((id, key, _)) = self.model.uploads.get(upload).cloned() else { return };
                let part = self.store.attempt();
                let outcome = self.store.key_as(part, key, part_op(id, number, part));
                assert!(matches!(outcome, Outcome::Part { .. }));
                let piece = Piece::Content(key.to_owned(), part);
                self.model.uploads[upload].2.insert(number, (part, piece));
            }
            Op::CopyPart { upload, number, from, nth } => self.copy_part(upload, number, KEYS[from], nth),
            Op::Complete { upload, but } => self.complete(upload, but),
            Op::Abort { upload } => {
                if upload < self.model.uploads.len() {
                    let (id, key, _) = self.model.uploads.remove(upload);
                    assert_eq!(self.store.key(key, KeyOp::AbortUpload { upload: id }), Outcome::Done);
                }
            }
            Op::Versioning(enabled) => {
                self.versioning = if enabled { Versioning::Enabled } else { Versioning::Suspended };
                self.store.set_versioning(self.versioning);
            }
            Op::Abandon { key } => {
                let id = self.store.attempt();
                let op = KeyOp::Abandon { runs: model_support::runs(id) };
                assert_eq!(self.store.key_as(id, KEYS[key], op), Outcome::Done);
                let again = self.store.key_as(id, KEYS[key], put_op(id, PutConditions::default()));
                assert_eq!(again, Outcome::Refused(Refusal::ContentTaken), "an abandoned upload is never committed");
            }
            Op::Expand(shard) => {
                let shard = shard % self.store.shards.len();
                self.store.expand(shard);
            }
            Op::Reclaim(shard) => {
                let shard = shard % self.store.shards.len();
                self.store.reclaim(shard);
            }
            Op::Deliver(shard) => {
                let shard = shard % self.store.shards.len();
                let reachable = self.model.reachable();
                for group in self.store.deliver(shard) {
                    assert!(!reachable.iter().any(|id| id.sequence == group.0), "{group} is not garbage");
                }
            }
        }
    }

    fn delete(&mut self, key: &'static str) {
        let outcome = self.store.delete(key, None);
        if self.versioning == Versioning::Off {
            assert_eq!(outcome, Outcome::Deleted { version: None, delete_marker: false });
            self.model.keys.remove(key);
            return;
        }
        let Outcome::Deleted { version: Some(id), delete_marker: true } = outcome else { panic!("{outcome:?}") };
        self.model.push(key, Version { id, pieces: None, multipart: false });
    }

    fn delete_version(&mut self, key: &'static str, nth: usize) {
        let versions = self.model.keys.entry(key).or_default();
        let (id, marker) = match versions.get(nth) {
            Some(version) => (version.id, version.pieces.is_none()),
            None => (VersionId::Id { sequence: 999, attempt: AttemptId { node: 8, session: 8, sequence: 8 } }, false),
        };
        versions.retain(|v| v.id != id);
        let outcome = self.store.delete(key, Some(id));
        assert_eq!(outcome, Outcome::Deleted { version: Some(id), delete_marker: marker });
    }

    /// The body ids and references of a version, as a gateway reads them; `None`: nothing to copy fast.
    fn source(&self, from: &str, nth: usize) -> Option<(Vec<Reference>, bool)> {
        let version = self.model.keys.get(from)?.get(nth)?;
        let pieces = version.pieces.as_ref()?;
        let references = pieces.iter().map(|piece| match piece {
            Piece::Content(home, id) => Some(self.store.reference(home, *id)),
            Piece::Inline(_) => None,
        });
        Some((references.collect::<Option<Vec<_>>>()?, version.multipart))
    }

    /// Step 1 of a copy: owners at homes that are not in the destination's shard.
    fn add_owners(&mut self, owner: AttemptId, references: &[Reference], to: &str) -> Vec<(usize, Reference)> {
        let at = self.store.shard_of(&key(to));
        let mut foreign: BTreeMap<usize, Vec<Reference>> = BTreeMap::new();
        for reference in references {
            let shard = self.store.shard_of(&reference.home.key);
            if shard != at {
                foreign.entry(shard).or_default().push(reference.clone());
            }
        }
        for (shard, references) in &foreign {
            let contents = references.iter().map(|r| (r.home.clone(), r.content)).collect();
            let command = ShardCommand::AddOwners { contents, destination: home(to) };
            assert_eq!(self.store.shard_as(*shard, owner, command), Outcome::Done);
        }
        foreign.into_iter().flat_map(|(shard, refs)| refs.into_iter().map(move |r| (shard, r))).collect()
    }

    /// What a gateway does with owners it added for a copy that was refused.
    fn take_back(&mut self, owner: AttemptId, added: Vec<(usize, Reference)>) {
        for (shard, reference) in added {
            let owners = vec![(reference.home, reference.content, owner)];
            assert_eq!(self.store.shard(shard, ShardCommand::ReleaseOwners { owners }), Outcome::Done);
        }
    }

    fn copy(&mut self, from: &'static str, nth: usize, to: &'static str, must_not_exist: bool) {
        let Some((references, multipart)) = self.source(from, nth) else { return };
        let owner = self.store.attempt();
        let added = self.add_owners(owner, &references, to);
        let part = |(number, reference): (u32, &Reference)| {
            let offset = u64::from(number - 1) * CONTENT_BYTES;
            let part = ManifestPart { number, offset, size: CONTENT_BYTES, checksum: None, body: owner };
            (part, reference.clone())
        };
        let data = match multipart {
            true => CopyData::Parts((1..).zip(&references).map(part).collect()),
            false => CopyData::One(references[0].clone()),
        };
        let mut object = new_version(owner);
        object.size = references.len() as u64 * CONTENT_BYTES;
        let op = KeyOp::Copy { object, data, conditions: Self::conditions(must_not_exist) };
        let outcome = self.store.key_as(owner, to, op);
        let pieces = self.model.keys[from][nth].pieces.clone().expect("live");
        if !self.took(to, must_not_exist, outcome, pieces, multipart) {
            self.take_back(owner, added);
        }
    }

    fn copy_part(&mut self, upload: usize, number: u32, from: &'static str, nth: usize) {
        let Some((id, to, _)) = self.model.uploads.get(upload).cloned() else { return };
        let Some((references, false)) = self.source(from, nth) else { return };
        let owner = self.store.attempt();
        self.add_owners(owner, &references, to);
        let bytes = PartBytes::Copied(references[0].clone());
        let op = KeyOp::PutPart { upload: id, number, size: CONTENT_BYTES, md5: md5_of(owner), checksum: None, bytes };
        assert!(matches!(self.store.key_as(owner, to, op), Outcome::Part { .. }));
        let piece = self.model.keys[from][nth].pieces.as_ref().expect("live")[0].clone();
        self.model.uploads[upload].2.insert(number, (owner, piece));
    }

    fn complete(&mut self, upload: usize, but: u32) {
        let Some((id, key, parts)) = self.model.uploads.get(upload).cloned() else { return };
        let chosen: Vec<_> = parts.into_iter().filter(|(number, _)| *number != but).collect();
        let listed: Vec<_> = chosen.iter().map(|(number, (part, _))| (*number, etag_text(*part), None)).collect();
        let conditions = PutConditions::default();
        let op = KeyOp::CompleteUpload { upload: id, parts: listed, conditions, checksum: None, size: None };
        let outcome = self.store.key(key, op.clone());
        if chosen.is_empty() {
            assert!(matches!(outcome, Outcome::Refused(Refusal::Invalid(_))));
            return;
        }
        assert_eq!(self.store.key(key, op), outcome, "the same Complete again gets the same answer");
        self.model.uploads.remove(upload);
        let pieces = chosen.into_iter().map(|(_, (_, piece))| piece).collect();
        assert!(self.took(key, false, outcome, pieces, true));
    }

    /// The rows show exactly what the model has.
    fn compare(&self) {
        let request = ListVersions { max: 1000, ..ListVersions::default() };
        let page = versions(&self.store.rows, BUCKET, &request).expect("lists");
        let shown: Vec<_> = page.versions.iter().map(|v| (v.key.as_str(), v.version, v.object.is_some())).collect();
        let known = self.model.keys.iter();
        let known: Vec<_> = known.flat_map(|(k, vs)| vs.iter().map(|v| (*k, v.id, v.pieces.is_some()))).collect();
        assert_eq!(shown, known);
        for (text, version) in self.model.keys.iter().flat_map(|(k, vs)| vs.iter().map(move |v| (*k, v))) {
            let found = lookup(&self.store.rows, BUCKET, &key(text), Some(version.id), true).expect("readable");
            match (&version.pieces, found) {
                (Some(pieces), Lookup::Live(row)) => {
                    let object = row.object.expect("live");
                    assert_eq!(&self.store.pieces(text, &object), pieces, "{text} {:?}", version.id);
                }
                (None, Lookup::DeleteMarker(id, _)) => assert_eq!(id, version.id),
                (_, other) => panic!("{text} {:?}: {other:?}", version.id),
            }
        }
        for (id, text, parts) in &self.model.uploads {
            let page = upload::parts(&self.store.rows, BUCKET, &key(text), *id, 0, 100).expect("readable");
            let shown: Vec<_> =
                page.parts.iter().map(|(n, p)| (*n, self.store.piece(&home(text), BodyId::whole(p.body)))).collect();
            let known: Vec<_> = parts.iter().map(|(n, (_, piece))| (*n, piece.clone())).collect();
            assert_eq!(shown, known);
        }
    }

    fn run(mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
            self.compare();
            let there: BTreeSet<_> = self.store.contents().into_iter().collect();
            assert!(self.model.reachable().is_subset(&there), "reclaiming takes only garbage");
        }
        self.store.settle_down();
        self.compare();
        let there: BTreeSet<_> = self.store.contents().into_iter().collect();
        assert_eq!(there, self.model.reachable(), "in the end all garbage is gone");
        let homes: BTreeSet<_> =
            content::all_owners(&self.store.rows, &KeyRange::ALL).map(|row| row.expect("readable").1).collect();
        assert!(homes.is_subset(&there));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn one_shard_does_what_the_model_does(ops in ops()) {
        Run::new(&[]).run(&ops);
    }

    #[test]
    fn three_shards_do_what_the_model_does(ops in ops()) {
        Run::new(&["a/b", "b"]).run(&ops);
    }
}
