//! The network of a simulated world: who is on it, what is cut, and what chance does to each message.
//!
//! Promises: all chance is drawn from the seed; a cut takes effect at once, also on what is on its way. Refuses to know: messages.

use super::faults::Faults;
use super::peers::SimPeers;
use super::post::{self, Post};
use crate::handlers::Handlers;
use crate::{Handler, Message, Service, Transport};
use env::Env;
use env::random::{Random, SimRandom};
use env::tasks::Worker;
use env::world::SimWorld;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

/// Messages that arrived and were not looked at, for one node; more are lost.
const INBOX_MESSAGES: usize = 65_536;
const MILLION: u64 = 1_000_000;

/// The network. Cheap to clone.
#[derive(Clone)]
pub struct SimNet {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// Outside of all nodes: what is on its way outlives its sender.
    pub(super) outside: Env,
    pub(super) post: Post,
    random: SimRandom,
    state: Mutex<State>,
}

struct State {
    members: BTreeMap<NodeId, Member>,
    faults: Faults,
    links: BTreeMap<(NodeId, NodeId), Faults>,
    /// Directions in which nothing passes.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Between different numbers nothing passes; 0 where there is none.
    sides: BTreeMap<NodeId, u32>,
    counts: Counts,
}

/// One life of a node.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) env: Env,
    pub(super) handlers: Handlers,
    /// Takes messages without answer in the order they arrive.
    pub(super) inbox: Worker<(Arc<dyn Handler>, NodeId, Message)>,
}

/// What the network did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls that reached a handler, and messages that reached an inbox.
    pub delivered: u64,
    /// Messages, calls and answers that did not arrive, for whatever reason.
    pub lost: u64,
    /// Messages that were sent a second time.
    pub doubled: u64,
    /// Messages that were left behind.
    pub overtaken: u64,
}

impl SimNet {
    /// The network of this world, quiet at first. A world may have several.
    pub fn new(world: &SimWorld, seed: u64) -> SimNet {
        let state = State {
            members: BTreeMap::new(),
            faults: Faults::NONE,
            links: BTreeMap::new(),
            cuts: BTreeSet::new(),
            sides: BTreeMap::new(),
            counts: Counts::default(),
        };
        let outside = world.outside();
        let shared = Shared { outside, post: Post::default(), random: SimRandom::new(seed), state: Mutex::new(state) };
        let net = SimNet { shared: Arc::new(shared) };
        net.shared.outside.tasks.spawn(post::deliver(Arc::downgrade(&net.shared)));
        net
    }

    /// Puts a node on the network, or its next life in place of a former one. `env` is that of the node: with it the node's calls and
    /// handlers die.
    pub fn join(&self, node: NodeId, env: &Env, handlers: Handlers) -> Arc<dyn Transport> {
        let inbox = Worker::spawn(&env.tasks, "inbox", INBOX_MESSAGES, INBOX_MESSAGES, |batch| {
            for (handler, from, message) in batch {
                let handler: Arc<dyn Handler> = handler;
                handler.receive(from, message);
            }
        });
        let member = Member { env: env.clone(), handlers: handlers.clone(), inbox };
        self.shared.state.lock().members.insert(node, member);
        Arc::new(SimPeers::new(self.clone(), node, env.clone(), handlers))
    }

    /// How all links behave that have nothing of their own.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.state.lock().faults = faults;
    }

    /// How one direction behaves; `None`: as all.
    pub fn set_link(&self, from: NodeId, to: NodeId, faults: Option<Faults>) {
        let mut state = self.shared.state.lock();
        match faults {
            Some(faults) => state.links.insert((from, to), faults),
            None => state.links.remove(&(from, to)),
        };
    }

    /// Nothing passes in this direction from now on.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.shared.state.lock().cuts.insert((from, to));
    }

    /// Takes one cut away.
    pub fn mend(&self, from: NodeId, to: NodeId) {
        self.shared.state.lock().cuts.remove(&(from, to));
    }

    /// These nodes hear each other and nobody else, in place of a former partition.
    pub fn partition(&self, sides: &[&[NodeId]]) {
        let number = |(side, nodes): (u32, &&[NodeId])| nodes.iter().map(move |node| (*node, side)).collect::<Vec<_>>();
        self.shared.state.lock().sides = (1..).zip(sides).flat_map(number).collect();
    }

    /// Takes all cuts and partitions away, not the faults.
    pub fn mend_all(&self) {
        let mut state = self.shared.state.lock();
        state.cuts.clear();
        state.sides.clear();
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().counts
    }
}

/// What chance does to a message.
pub(super) enum Fate {
    Arrives(Duration),
    Lost,
}

impl Shared {
    /// Draws what happens to a message in this direction.
    pub(super) fn fate(&self, from: NodeId, to: NodeId) -> Fate {
        let faults = self.faults(from, to);
        match !self.passes(from, to) || self.chance(faults.lost_ppm) {
            true => Fate::Lost,
            false => Fate::Arrives(self.delay(&faults)),
        }
    }

    pub(super) fn faults(&self, from: NodeId, to: NodeId) -> Faults {
        let state = self.state.lock();
        state.links.get(&(from, to)).copied().unwrap_or(state.faults)
    }

    /// Whether the direction is open now.
    pub(super) fn passes(&self, from: NodeId, to: NodeId) -> bool {
        let state = self.state.lock();
        let side = |node| state.sides.get(&node).copied().unwrap_or(0);
        !state.cuts.contains(&(from, to)) && side(from) == side(to)
    }

    /// The node in its present life, if it is in one.
    pub(super) fn member(&self, node: NodeId) -> Option<Member> {
        let member = self.state.lock().members.get(&node).cloned()?;
        member.env.tasks.is_alive().then_some(member)
    }

    pub(super) fn delay(&self, faults: &Faults) -> Duration {
        let (least, most) = match self.chance(faults.slow_ppm) {
            true => (faults.most_delay, faults.slow_delay.max(faults.most_delay)),
            false => (faults.least_delay, faults.most_delay.max(faults.least_delay)),
        };
        let span = u64::try_from((most - least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos(self.random.next_u64() % (span + 1))
    }

    pub(super) fn chance(&self, ppm: u32) -> bool {
        ppm > 0 && self.random.next_u64() % MILLION < u64::from(ppm)
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.state.lock().counts);
    }

    pub(super) fn receive(&self, from: NodeId, to: NodeId, service: Service, message: Message) {
        let member = self.passes(from, to).then(|| self.member(to)).flatten();
        let taken = member.and_then(|member| {
            let handler = member.handlers.get(service)?;
            member.inbox.submit((handler, from, message)).ok()
        });
        self.count(|counts| match taken {
            Some(()) => counts.delivered += 1,
            None => counts.lost += 1,
        });
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNet").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
