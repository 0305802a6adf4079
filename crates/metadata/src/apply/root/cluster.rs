//! The cluster map in root: who belongs to the cluster, and which disks.
//!
//! Promises: node ids are never given twice, and neither is a token's admission; every change raises the epoch by one and a command
//! that changes nothing raises nothing, so a repeated entry does no harm; an old image of a node or disk is refused (rules R59, R60).
//! Refuses to know: whether a change would break copies or quorums. That is judged before, and `at_epoch` makes sure that it was
//! judged on the map that is changed.

use crate::apply::Decision;
use crate::apply::draft::Work;
use crate::command::{Outcome, Refusal};
use crate::format::key;
use crate::format::value::Counter;
use crate::read::root;
use crate::rows::{ClusterRow, TokenRow};
use types::cluster::command::{ClusterCommand, MapChange, NewDisk};
use types::cluster::{
    ClusterRefusal, Disk, DiskState, Limit, MAX_DISKS_PER_NODE, MAX_NODES, MAX_TOKENS, NewNode, Node, NodeStart,
    NodeState,
};
use types::{ClusterId, DiskId, NodeId, TokenId};

/// The first node of a cluster.
const FIRST_NODE: NodeId = 1;
/// The version that a cluster is born with.
const FIRST_VERSION: u32 = 1;
/// How long after its end a token is remembered: a joining node that is told nothing asks again for hours, not for days.
const TOKEN_REMEMBERED_MS: u64 = 24 * 3600 * 1000;

pub(super) fn decide(work: &mut Work<'_>, command: &ClusterCommand) -> Decision {
    use ClusterCommand as C;
    match command {
        C::Init { cluster, node, disks } => init(work, *cluster, node, disks),
        C::CreateToken { token, secret_sha256, expires_ms } => create_token(work, *token, *secret_sha256, *expires_ms),
        C::RevokeToken { token } => revoke_token(work, *token),
        C::AddNode { token, secret_sha256, node, disks } => add_node(work, *token, secret_sha256, node, disks),
        C::UpdateNode { node, start } => update_node(work, *node, start),
        C::SetNodeState { node, state, at_epoch } => set_node_state(work, *node, *state, *at_epoch),
        C::ReportDisk { node, node_incarnation, incarnation, disk } => {
            report_disk(work, *node, *node_incarnation, *incarnation, disk)
        }
        C::SetDiskState { disk, state, at_epoch } => set_disk_state(work, *disk, *state, *at_epoch),
        C::SetVersion { version } => set_version(work, *version),
    }
}

impl From<ClusterRefusal> for crate::apply::Stop {
    fn from(refusal: ClusterRefusal) -> Self {
        Refusal::Cluster(refusal).into()
    }
}

fn invalid(what: &str) -> ClusterRefusal {
    ClusterRefusal::Invalid(what.to_owned())
}

fn head(work: &Work<'_>) -> Decision<ClusterRow> {
    root::cluster(&work.draft)?.ok_or_else(|| ClusterRefusal::NotBorn.into())
}

/// The map changes: the next epoch.
fn changed(work: &mut Work<'_>, mut head: ClusterRow, node: Option<NodeId>) -> Decision {
    head.epoch += 1;
    work.draft.put(key::cluster(), &head);
    Ok(Outcome::Map(MapChange { epoch: head.epoch, node }))
}

fn unchanged(head: &ClusterRow, node: Option<NodeId>) -> Decision {
    Ok(Outcome::Map(MapChange { epoch: head.epoch, node }))
}

fn init(work: &mut Work<'_>, cluster: ClusterId, node: &NewNode, disks: &[NewDisk]) -> Decision {
    if let Some(head) = root::cluster(&work.draft)? {
        if head.cluster != cluster {
            return Err(ClusterRefusal::OtherCluster(head.cluster).into());
        }
        let first = live_node(work, FIRST_NODE)?;
        return if first.key == node.key {
            unchanged(&head, Some(FIRST_NODE))
        } else {
            Err(invalid("the map's first node has another key").into())
        };
    }
    let head = ClusterRow { cluster, epoch: 0, version: FIRST_VERSION, last_node: FIRST_NODE };
    put_new(work, FIRST_NODE, NodeState::Active, node, disks, &head)?;
    changed(work, head, Some(FIRST_NODE))
}

/// A node and its disks, none of which may be known.
fn put_new(
    work: &mut Work<'_>,
    id: NodeId,
    state: NodeState,
    node: &NewNode,
    disks: &[NewDisk],
    head: &ClusterRow,
) -> Decision<()> {
    check_start(&node.start, head)?;
    if disks.len() > MAX_DISKS_PER_NODE {
        return Err(ClusterRefusal::Full(Limit::Disks).into());
    }
    let row = Node { id, key: node.key, state, start: node.start.clone(), joined_ms: work.now_ms };
    work.draft.put(key::node(id), &row);
    for NewDisk { id: disk, total_bytes } in disks.iter().copied() {
        if let Some(known) = root::disk(&work.draft, disk)? {
            return Err(ClusterRefusal::ForeignDisk(known.node).into());
        }
        let row = Disk { id: disk, node: id, state: DiskState::Active, incarnation: 0, reported_by: 0, total_bytes };
        work.draft.put(key::disk(disk), &row);
    }
    Ok(())
}

fn check_start(start: &NodeStart, head: &ClusterRow) -> Decision<()> {
    start.check().map_err(invalid)?;
    if start.version < head.version {
        return Err(ClusterRefusal::ProgramTooOld(head.version).into());
    }
    Ok(())
}

/// A node that is not removed.
fn live_node(work: &Work<'_>, id: NodeId) -> Decision<Node> {
    let node = root::node(&work.draft, id)?.filter(|node| node.state != NodeState::Removed);
    node.ok_or_else(|| ClusterRefusal::NoSuchNode(id).into())
}

fn nodes(work: &Work<'_>) -> Decision<Vec<Node>> {
    Ok(root::nodes(&work.draft).collect::<Result<_, _>>()?)
}

fn create_token(work: &mut Work<'_>, token: TokenId, secret_sha256: [u8; 32], expires_ms: u64) -> Decision {
    let head = head(work)?;
    let row = TokenRow { secret_sha256, expires_ms, used_by: None };
    match root::token(&work.draft, token)? {
        Some(present) if present == row => return unchanged(&head, None),
        Some(_) => return Err(ClusterRefusal::TokenTaken.into()),
        None if expires_ms <= work.now_ms => return Err(ClusterRefusal::TokenExpired.into()),
        None => {}
    }
    let tokens: Vec<_> = root::tokens(&work.draft).collect::<Result<_, _>>()?;
    let forgotten = |row: &TokenRow| row.expires_ms.saturating_add(TOKEN_REMEMBERED_MS) <= work.now_ms;
    let (old, kept): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|(_, row)| forgotten(row));
    if kept.len() >= MAX_TOKENS {
        return Err(ClusterRefusal::Full(Limit::Tokens).into());
    }
    for (id, _) in old {
        work.draft.remove(key::token(id));
    }
    work.draft.put(key::token(token), &row);
    unchanged(&head, None)
}

/// The row stays, expired: else the proposal that made the token, if it was made twice, would make it again.
fn revoke_token(work: &mut Work<'_>, token: TokenId) -> Decision {
    let head = head(work)?;
    if let Some(row) = root::token(&work.draft, token)? {
        let expires_ms = row.expires_ms.min(work.now_ms);
        work.draft.put(key::token(token), &TokenRow { expires_ms, ..row });
    }
    unchanged(&head, None)
}

/// A node that asks again because it was not told its id gets the same one, also when the token has expired meanwhile: what admits
/// it then is its key, not the token.
fn add_node(
    work: &mut Work<'_>,
    token: TokenId,
    secret_sha256: &[u8; 32],
    node: &NewNode,
    disks: &[NewDisk],
) -> Decision {
    let mut head = head(work)?;
    let row = root::token(&work.draft, token)?.filter(|row| row.secret_sha256 == *secret_sha256);
    let row = row.ok_or(ClusterRefusal::TokenUnknown)?;
    let nodes = nodes(work)?;
    let known = nodes.iter().find(|known| known.key == node.key);
    match (known, row.used_by) {
        (Some(known), _) if known.state == NodeState::Removed => {
            return Err(ClusterRefusal::KeyRemoved(known.id).into());
        }
        (Some(known), Some(used_by)) if known.id == used_by => return unchanged(&head, Some(known.id)),
        (_, Some(used_by)) => return Err(ClusterRefusal::TokenUsed(used_by).into()),
        _ if row.expires_ms <= work.now_ms => return Err(ClusterRefusal::TokenExpired.into()),
        // It is in already by another token; this one is left for a node that needs it.
        (Some(known), None) => return unchanged(&head, Some(known.id)),
        (None, None) => {}
    }
    if nodes.iter().filter(|node| node.state != NodeState::Removed).count() >= MAX_NODES {
        return Err(ClusterRefusal::Full(Limit::Nodes).into());
    }
    let id = head.last_node.checked_add(1).ok_or(ClusterRefusal::Full(Limit::Nodes))?;
    put_new(work, id, NodeState::Joining, node, disks, &head)?;
    work.draft.put(key::token(token), &TokenRow { used_by: Some(id), ..row });
    head.last_node = id;
    changed(work, head, Some(id))
}

fn update_node(work: &mut Work<'_>, id: NodeId, start: &NodeStart) -> Decision {
    let head = head(work)?;
    let node = live_node(work, id)?;
    if node.start == *start {
        return unchanged(&head, Some(id));
    }
    // The same number with other words is a second copy of the node, started elsewhere.
    if start.incarnation <= node.start.incarnation {
        let (known, given) = (node.start.incarnation, start.incarnation);
        return Err(ClusterRefusal::OldIncarnation { known, given }.into());
    }
    check_start(start, &head)?;
    work.draft.put(key::node(id), &Node { start: start.clone(), ..node });
    changed(work, head, Some(id))
}

fn check_epoch(head: &ClusterRow, at_epoch: Option<u64>) -> Decision<()> {
    match at_epoch {
        Some(judged) if judged != head.epoch => Err(ClusterRefusal::MapMoved(head.epoch).into()),
        _ => Ok(()),
    }
}

fn set_node_state(work: &mut Work<'_>, id: NodeId, state: NodeState, at_epoch: Option<u64>) -> Decision {
    let head = head(work)?;
    let node = root::node(&work.draft, id)?.ok_or(ClusterRefusal::NoSuchNode(id))?;
    if node.state == state {
        return unchanged(&head, Some(id));
    }
    check_epoch(&head, at_epoch)?;
    if !node.state.may_become(state) {
        let sentence = format!("node {id} is {:?} and cannot become {state:?}", node.state);
        return Err(ClusterRefusal::State(sentence).into());
    }
    let active = |node: &Node| node.state == NodeState::Active;
    if active(&node) && !nodes(work)?.iter().any(|other| active(other) && other.id != id) {
        return Err(ClusterRefusal::LastActive.into());
    }
    if state == NodeState::Removed {
        lose_disks(work, id)?;
        // What it wrote last is judged without it.
        let ended = root::session(&work.draft, id)? + 1;
        work.draft.put(key::session(id), &Counter(ended.into()));
    }
    work.draft.put(key::node(id), &Node { state, ..node });
    changed(work, head, Some(id))
}

/// What is left on a removed node is lost: the records of groups that count on it must not wait for it.
fn lose_disks(work: &mut Work<'_>, node: NodeId) -> Decision<()> {
    let disks: Vec<Disk> = root::disks(&work.draft).collect::<Result<_, _>>()?;
    for disk in disks.into_iter().filter(|disk| disk.node == node && disk.state.is_here()) {
        work.draft.put(key::disk(disk.id), &Disk { state: DiskState::Lost, ..disk });
    }
    Ok(())
}

fn report_disk(work: &mut Work<'_>, node: NodeId, node_incarnation: u64, incarnation: u64, disk: &NewDisk) -> Decision {
    let head = head(work)?;
    let owner = live_node(work, node)?;
    if owner.start.incarnation != node_incarnation {
        let known = owner.start.incarnation;
        return Err(ClusterRefusal::OldIncarnation { known, given: node_incarnation }.into());
    }
    let known = root::disk(&work.draft, disk.id)?;
    match &known {
        None => check_room(work, node)?,
        Some(known) => check_known(known, node, node_incarnation, incarnation)?,
    }
    let state = known.as_ref().map_or(DiskState::Active, |known| known.state);
    let total_bytes = disk.total_bytes;
    let row = Disk { id: disk.id, node, state, incarnation, reported_by: node_incarnation, total_bytes };
    if known.as_ref() == Some(&row) {
        return unchanged(&head, Some(node));
    }
    work.draft.put(key::disk(disk.id), &row);
    changed(work, head, Some(node))
}

fn check_room(work: &Work<'_>, node: NodeId) -> Decision<()> {
    let disks: Vec<Disk> = root::disks(&work.draft).collect::<Result<_, _>>()?;
    let here = disks.iter().filter(|disk| disk.node == node && disk.state.is_here());
    if here.count() >= MAX_DISKS_PER_NODE { Err(ClusterRefusal::Full(Limit::Disks).into()) } else { Ok(()) }
}

/// A disk that was set back by one start comes with the number the map has: only the run that reported that number may say it again.
fn check_known(known: &Disk, node: NodeId, node_incarnation: u64, incarnation: u64) -> Decision<()> {
    if known.node != node {
        return Err(ClusterRefusal::ForeignDisk(known.node).into());
    }
    if !known.state.is_here() {
        return Err(ClusterRefusal::DiskGone(known.state).into());
    }
    let again = incarnation == known.incarnation && node_incarnation == known.reported_by;
    if incarnation <= known.incarnation && !again {
        return Err(ClusterRefusal::OldIncarnation { known: known.incarnation, given: incarnation }.into());
    }
    Ok(())
}

fn set_disk_state(work: &mut Work<'_>, id: DiskId, state: DiskState, at_epoch: Option<u64>) -> Decision {
    let head = head(work)?;
    let disk = root::disk(&work.draft, id)?.ok_or(ClusterRefusal::NoSuchDisk(id))?;
    if disk.state == state {
        return unchanged(&head, None);
    }
    check_epoch(&head, at_epoch)?;
    if !disk.state.may_become(state) {
        let sentence = format!("disk {id} is {:?} and cannot become {state:?}", disk.state);
        return Err(ClusterRefusal::State(sentence).into());
    }
    work.draft.put(key::disk(id), &Disk { state, ..disk });
    changed(work, head, None)
}

fn set_version(work: &mut Work<'_>, version: u32) -> Decision {
    let mut head = head(work)?;
    if version == head.version {
        return unchanged(&head, None);
    }
    if version < head.version {
        return Err(invalid("a cluster's version only ever rises").into());
    }
    let behind = nodes(work)?.into_iter().find(|node| node.state.is_trusted() && node.start.version < version);
    if let Some(node) = behind {
        return Err(ClusterRefusal::NotAllReady(node.id).into());
    }
    head.version = version;
    changed(work, head, None)
}
