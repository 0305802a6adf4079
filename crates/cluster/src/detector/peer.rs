//! One peer as a node sees it, and the count of what the witnesses see.

use super::{Health, Me, micros};
use crate::limits::{
    DOWN, FAST_AFTER, HEARTBEAT, REPORT_FRESH, SERVICE_FRESH, SLOW_AFTER, SLOW_FACTOR, SLOW_ROUND_TRIP, SLOW_SERVICE,
    SUSPECT,
};
use crate::wire::{Echo, Heartbeat, Seen};
use std::time::Duration;
use types::NodeId;
use types::cluster::MAX_NODES;

/// A new sample counts for an eighth.
const SMOOTHING: u64 = 8;

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// It is a member: a witness.
    pub(super) counts: bool,
    pub(super) health: Health,
    pub(super) slow: bool,
    pub(super) epoch: u64,
    /// Its wall clock minus ours.
    pub(super) ahead_ms: Option<i64>,
    incarnation: u64,
    sequence: u64,
    /// Its clock in the newest heartbeat, and when that was heard.
    newest: Option<(u64, Duration)>,
    /// When we sent the newest heartbeat that it gave back: the last round trip began then.
    confirmed: Duration,
    round_trip_us: u64,
    service: Option<(u64, Duration)>,
    /// What it sees of others, in a heartbeat that it sent after it had heard the one we sent at this time.
    report: Option<(Duration, Vec<Seen>)>,
    fine_since: Option<Duration>,
    slow_since: Option<Duration>,
    fast_since: Option<Duration>,
}

impl Peer {
    pub(super) fn new(now: Duration) -> Peer {
        Peer {
            counts: false,
            health: Health::Up,
            slow: false,
            epoch: 0,
            ahead_ms: None,
            incarnation: 0,
            sequence: 0,
            newest: None,
            confirmed: now,
            round_trip_us: 0,
            service: None,
            report: None,
            fine_since: None,
            slow_since: None,
            fast_since: None,
        }
    }

    /// Another start of it is known: what the former said counts no more.
    pub(super) fn raise_incarnation(&mut self, incarnation: u64) {
        if incarnation > self.incarnation {
            self.incarnation = incarnation;
            self.sequence = 0;
            self.newest = None;
            self.report = None;
        }
    }

    pub(super) fn heard(&mut self, me: &Me, heartbeat: Heartbeat, now: Duration, wall_ms: u64) {
        if heartbeat.incarnation < self.incarnation || heartbeat.seen.len() > MAX_NODES {
            return;
        }
        self.raise_incarnation(heartbeat.incarnation);
        if heartbeat.sequence <= self.sequence {
            return;
        }
        self.sequence = heartbeat.sequence;
        self.newest = Some((heartbeat.sent_us, now));
        self.epoch = self.epoch.max(heartbeat.epoch);
        // Of this start of ours, and not of the future: else it is no answer to anything.
        let echo = heartbeat.echo.filter(|echo| echo.incarnation == me.incarnation && echo.sent_us <= micros(now));
        let Some(echo) = echo else { return };
        let sent = Duration::from_micros(echo.sent_us);
        self.confirmed = self.confirmed.max(sent);
        let round_trip = micros(now.saturating_sub(sent)).saturating_sub(echo.held_us);
        self.round_trip_us = smooth(self.round_trip_us, round_trip);
        let theirs = i64::try_from(heartbeat.wall_ms).unwrap_or(i64::MAX);
        let half_way = i64::try_from(round_trip / 2000).unwrap_or(0);
        let ours = i64::try_from(wall_ms).unwrap_or(i64::MAX);
        self.ahead_ms = Some(theirs.saturating_add(half_way).saturating_sub(ours));
        self.report = Some((sent, heartbeat.seen));
    }

    pub(super) fn observe(&mut self, took: Duration, now: Duration) {
        let before = self.service.map_or(0, |(before, _)| before);
        self.service = Some((smooth(before, micros(took)), now));
    }

    /// We were not there for so long. What was said before is too old to count.
    pub(super) fn forgive(&mut self, passed: Duration, now: Duration) {
        self.confirmed = (self.confirmed + passed.saturating_sub(HEARTBEAT)).min(now);
        self.report = None;
        self.fine_since = None;
        self.slow_since = None;
        self.fast_since = None;
    }

    pub(super) fn echo(&self, now: Duration) -> Option<Echo> {
        let (sent_us, at) = self.newest?;
        Some(Echo { incarnation: self.incarnation, sent_us, held_us: micros(now.saturating_sub(at)) })
    }

    pub(super) fn seen(&self, node: NodeId, now: Duration) -> Seen {
        let service = self.service.filter(|(_, at)| now.saturating_sub(*at) < SERVICE_FRESH);
        Seen {
            node,
            silent_ms: u32::try_from(now.saturating_sub(self.confirmed).as_millis()).unwrap_or(u32::MAX),
            round_trip_us: u32::try_from(self.round_trip_us).unwrap_or(u32::MAX),
            service_us: service.map_or(0, |(us, _)| u32::try_from(us).unwrap_or(u32::MAX)),
        }
    }

    pub(super) fn is_silent(&self, now: Duration) -> bool {
        now.saturating_sub(self.confirmed) >= SUSPECT
    }

    /// What it sees, if what it said last is no older than `REPORT_FRESH`.
    pub(super) fn report(&self, now: Duration) -> Option<&[Seen]> {
        let (after, seen) = self.report.as_ref()?;
        (now.saturating_sub(*after) <= REPORT_FRESH).then_some(seen.as_slice())
    }

    /// Whether the votes change what is thought of it.
    pub(super) fn judge(&mut self, votes: &Votes, now: Duration, recover: Duration) -> bool {
        let before = (self.health, self.slow);
        let fine_for = since(&mut self.fine_since, votes.is_heard(), now);
        self.health = match self.health {
            _ if votes.is_half(votes.down) => Health::Down,
            Health::Up if votes.is_half(votes.suspect) => Health::Suspect,
            Health::Suspect | Health::Down if fine_for.is_some_and(|time| time >= recover) => Health::Up,
            health => health,
        };
        let slow_for = since(&mut self.slow_since, votes.is_half(votes.slow), now);
        let fast_for = since(&mut self.fast_since, !votes.is_half(votes.slow), now);
        self.slow = match self.slow {
            false => slow_for.is_some_and(|time| time >= SLOW_AFTER),
            true => fast_for.is_none_or(|time| time < FAST_AFTER),
        };
        before != (self.health, self.slow)
    }
}

fn smooth(before: u64, sample: u64) -> u64 {
    let sample = sample.max(1);
    if before == 0 { sample } else { (before * (SMOOTHING - 1) + sample) / SMOOTHING }.max(1)
}

/// For how long it has been so, without a break.
fn since(start: &mut Option<Duration>, holds: bool, now: Duration) -> Option<Duration> {
    *start = if holds { Some(start.unwrap_or(now)) } else { None };
    start.map(|start| now.saturating_sub(start))
}

/// All that one witness sees.
pub(super) struct View<'a> {
    pub(super) seen: &'a [Seen],
}

impl View<'_> {
    fn of(&self, node: NodeId) -> Option<&Seen> {
        self.seen.iter().find(|seen| seen.node == node)
    }

    /// Whether this witness finds the node slow beside the others it sees. With nobody to compare it has no opinion.
    fn finds_slow(&self, about: NodeId) -> bool {
        let is_slow = |of: fn(&Seen) -> u32, least: Duration| {
            let Some(own) = self.of(about).map(of).filter(|us| *us > 0) else { return false };
            let mut others: Vec<u32> =
                self.seen.iter().filter(|s| s.node != about).map(of).filter(|us| *us > 0).collect();
            others.sort_unstable();
            let Some(median) = others.get(others.len() / 2) else { return false };
            u128::from(own) >= least.as_micros() && own >= median.saturating_mul(SLOW_FACTOR)
        };
        is_slow(|seen| seen.round_trip_us, SLOW_ROUND_TRIP) || is_slow(|seen| seen.service_us, SLOW_SERVICE)
    }
}

/// What the witnesses say of one node.
#[derive(Debug, Default)]
pub(super) struct Votes {
    members: usize,
    /// That hear it; a member hears itself.
    heard: usize,
    suspect: usize,
    down: usize,
    slow: usize,
}

impl Votes {
    pub(super) fn new(members: usize, is_member: bool) -> Votes {
        Votes { members, heard: usize::from(is_member), ..Votes::default() }
    }

    pub(super) fn add(&mut self, witness: View<'_>, about: NodeId) {
        let Some(seen) = witness.of(about) else { return };
        let silent = Duration::from_millis(seen.silent_ms.into());
        self.heard += usize::from(silent < SUSPECT);
        self.suspect += usize::from(silent >= SUSPECT);
        self.down += usize::from(silent >= DOWN);
        self.slow += usize::from(witness.finds_slow(about));
    }

    fn is_half(&self, count: usize) -> bool {
        count > 0 && 2 * count >= self.members
    }

    fn is_heard(&self) -> bool {
        2 * self.heard > self.members
    }
}
