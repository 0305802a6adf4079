//! The driver among others: messages, time, reads, changes of members.
//!
//! Promises: bytes of other nodes never panic; entries of others are taken only if log and apply have room for them, else they are
//! dropped and come again; a node whose log lacks what it once acknowledged stops (rule R14).
//! Refuses to know: how messages travel.

use super::{Driver, GroupReport, Round, ToDriver};
use crate::limits::{APPLY_BEHIND, CATCH_UP_BYTES, CAUGHT_UP_ENTRIES, GROUPS_MAX};
use crate::log::LogError;
use crate::log::format::ENTRY_OVERHEAD_BYTES;
use crate::node::ProposeError;
use crate::shard::ShardId;
use crate::shard::group::{FoundGroup, Group, raft_entry};
use crate::shard::shared::GroupNow;
use crate::shard::wire;
use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use types::NodeId;

impl Driver {
    /// Handles what is neither a proposal nor a batch of another node.
    pub(super) fn other(&mut self, message: ToDriver) {
        self.stirred = true;
        let failure = self.shared.failure();
        let read_only = || ProposeError::ReadOnly(failure.clone().unwrap_or_default());
        match message {
            ToDriver::Tick => {
                self.shared.tick_asked.store(false, Ordering::Release);
                if failure.is_none() {
                    self.tick();
                }
            }
            // Whoever asked may have given up: their answers may find nobody.
            ToDriver::Read(_, reply) if failure.is_some() => drop(reply.send(Err(read_only()))),
            ToDriver::Change(_, _, reply) if failure.is_some() => drop(reply.send(Err(read_only()))),
            ToDriver::Transfer(_, _, reply) if failure.is_some() => drop(reply.send(Err(read_only()))),
            ToDriver::Read(shard, reply) => match self.groups.get_mut(&shard) {
                Some(group) => group.reads.add(reply),
                None => drop(reply.send(Err(ProposeError::NoSuchShard))),
            },
            ToDriver::Change(shard, change, reply) => match self.groups.get_mut(&shard) {
                Some(group) => group.change_members(&change, reply, CAUGHT_UP_ENTRIES),
                None => drop(reply.send(Err(ProposeError::NoSuchShard))),
            },
            ToDriver::Transfer(shard, to, reply) => match self.groups.get_mut(&shard) {
                Some(group) => group.transfer(to, reply),
                None => drop(reply.send(Err(ProposeError::NoSuchShard))),
            },
            ToDriver::Report(shard, reply) => drop(reply.send(self.groups.get(&shard).map(report))),
            ToDriver::Poll(shard) => self.poll_fetch(shard),
            ToDriver::Installed(shard, id, result) => self.installed(shard, id, result),
            // Handled by the caller, in order with proposals.
            ToDriver::Propose(_)
            | ToDriver::Flushed(..)
            | ToDriver::Exclude(_)
            | ToDriver::Mark(_)
            | ToDriver::Receive(..) => {}
        }
    }

    fn tick(&mut self) {
        self.groups.values_mut().for_each(Group::tick);
        self.tick_snapshots();
    }

    /// Takes a batch in. Nothing of it is acknowledged before the round that follows is durable.
    pub(super) fn receive(&mut self, from: NodeId, batch: Bytes, round: &mut Round) {
        self.shared.received.fetch_sub(1, Ordering::AcqRel);
        if self.shared.failure().is_some() {
            return;
        }
        self.stirred = true;
        for (shard, message) in wire::decode(batch) {
            if message.from != u64::from(from) || message.to != u64::from(self.config.node) {
                continue;
            }
            if !message.entries.is_empty() && !self.has_room(&message, round) {
                continue;
            }
            if !self.know(shard, &message) {
                continue;
            }
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.offered(shard, from, message);
            } else if let Some(Err(reason)) = self.groups.get_mut(&shard).map(|group| group.step(message)) {
                return self.fail(reason);
            }
        }
    }

    /// Whether its entries fit: asked before Raft sees them, for then they have to be written.
    fn has_room(&mut self, message: &Message, round: &mut Round) -> bool {
        let bytes = message.entries.iter().map(|entry| entry.data.len() + ENTRY_OVERHEAD_BYTES).sum::<usize>();
        if self.apply.as_ref().is_some_and(|apply| apply.queued() > APPLY_BEHIND) {
            return false;
        }
        if self.received_bytes + round.bytes + bytes > self.batch_bytes() {
            self.run(std::mem::take(round));
        }
        match self.reserve(bytes + round.bytes) {
            Ok(()) => {
                self.received_bytes += bytes;
                true
            }
            Err(e @ LogError::Failed(_)) => {
                self.fail(e.to_string());
                false
            }
            Err(_) => false,
        }
    }

    /// Whether there is such a group; one that is not known is made if its leader speaks. It has no members and no rows, so it
    /// neither votes for itself nor is read, until a snapshot says more.
    fn know(&mut self, shard: ShardId, message: &Message) -> bool {
        if self.groups.contains_key(&shard) {
            return true;
        }
        let leads = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        if !leads || self.groups.len() >= GROUPS_MAX {
            return false;
        }
        match Group::new(FoundGroup::unknown(shard), self.config) {
            Ok(group) => self.groups.insert(shard, group).is_none(),
            Err(error) => {
                tracing::error!(shard = shard.0, error, "a group could not be made");
                false
            }
        }
    }

    /// Between two steps of a round: what followers need from the log, and what each group has to do about those who wait.
    pub(super) fn settle(&mut self) {
        let mut budget = CATCH_UP_BYTES;
        let mut snapshots = Vec::new();
        for (&shard, group) in &mut self.groups {
            group.settle();
            let asked = group.take_asked();
            for wanted in asked.entries {
                if budget == 0 {
                    // Asked for again with the next answer of that member.
                    break;
                }
                let found = self.log.read(shard, wanted.low, wanted.high, wanted.max_bytes.min(budget));
                let found: Vec<_> = found.into_iter().map(raft_entry).collect();
                let bytes = found.iter().map(|entry| entry.data.len() as u64).sum::<u64>();
                budget = budget.saturating_sub(bytes.max(1));
                let found = Some(found).filter(|found| !found.is_empty());
                group.raw.mut_store().set_fetched(Some((wanted.low, found)));
                group.raw.on_entries_fetched(wanted.context);
                group.raw.mut_store().set_fetched(None);
            }
            snapshots.extend(asked.snapshots.into_iter().map(|to| (shard, to)));
        }
        for (shard, to) in snapshots {
            self.offer(shard, to);
        }
    }

    /// Tells everybody on this node who leads and takes part.
    pub(super) fn publish(&self) {
        for (shard, group) in &self.groups {
            let now = GroupNow { term: group.raw.raft.term, leader: group.leader(), members: group.members() };
            self.shared.set_status(*shard, now, self.config.node);
        }
        let rounds = self.groups.values().map(|group| group.reads.begun()).sum();
        self.shared.counters.read_rounds.store(rounds, Ordering::Relaxed);
    }
}

fn report(group: &Group) -> GroupReport {
    let raft = &group.raw.raft;
    let matched = |(id, progress): (&u64, &raft::Progress)| Some((NodeId::try_from(*id).ok()?, progress.matched));
    let matched: BTreeMap<_, _> = match group.leads() {
        true => raft.prs().iter().filter_map(matched).collect(),
        false => BTreeMap::new(),
    };
    GroupReport {
        term: raft.term,
        leader: group.leader(),
        last: raft.raft_log.last_index(),
        committed: raft.raft_log.committed,
        matched,
    }
}
