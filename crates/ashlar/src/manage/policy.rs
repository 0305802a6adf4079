//! Which policies of durability a cluster can keep, and what they are worth. Values in, values out.
//!
//! Promises: what could not be kept now is refused with what it needs and what there is; what is allowed and worth less than it
//! seems is said (protocols.md 12, rule R27). Refuses to know: buckets, who asks.

use admin::operations::BucketWish;
use types::bucket::{Durability, Erasure};
use types::cluster::{DiskState, Map, NodeState};

/// What there is to keep copies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Nodes that stay.
    pub nodes: usize,
    /// Disks that stay of all these nodes.
    pub disks: usize,
    /// Replicas of a bucket that does not say.
    pub default_rf: u8,
    /// Its code, if it has one, and the delay until it is encoded.
    pub default_code: (Option<(u8, u8)>, u64),
}

impl Room {
    /// Of this cluster.
    pub fn of(map: &Map, default_rf: u8, default_code: (Option<(u8, u8)>, u64)) -> Room {
        let stays = |state: NodeState| matches!(state, NodeState::Active | NodeState::Maintenance);
        let nodes = map.nodes.values().filter(|node| stays(node.state)).count();
        let disks = map.disks.values().filter(|disk| {
            let node = map.nodes.get(&disk.node);
            disk.state == DiskState::Active && node.is_some_and(|node| stays(node.state))
        });
        Room { nodes, disks: disks.count(), default_rf, default_code }
    }
}

/// What a bucket's policy comes to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Replicas.
    pub rf: u8,
    /// Data and parity members, if it is encoded.
    pub code: Option<(u8, u8)>,
    /// From a group's sealing to its encoding.
    pub after_ms: u64,
}

impl Effective {
    /// Of a policy.
    pub fn of(durability: &Durability, room: &Room) -> Effective {
        let (default_code, default_after_ms) = room.default_code;
        let code = match durability.erasure {
            Erasure::ByCluster => default_code,
            Erasure::Never => None,
            Erasure::Code { k, m } => Some((k, m)),
        };
        let after_ms = durability.erasure_after_ms.unwrap_or(default_after_ms);
        Effective { rf: durability.replicas(room.default_rf), code, after_ms }
    }
}

/// The policy that is wished for, of a bucket that has that one. What is not said stays.
pub fn wished(present: Durability, wish: &BucketWish) -> Result<Durability, String> {
    let mut durability = if wish.default { Durability::default() } else { present };
    if let Some(rf) = wish.rf {
        durability.rf = Some(rf);
    }
    if let Some(ec) = &wish.ec {
        durability.erasure = erasure(ec)?;
    }
    if let Some(after_ms) = wish.ec_after_ms {
        durability.erasure_after_ms = Some(after_ms);
    }
    durability.check()?;
    Ok(durability)
}

fn erasure(text: &str) -> Result<Erasure, String> {
    if text == "none" {
        return Ok(Erasure::Never);
    }
    let code = text.split_once('+').and_then(|(k, m)| Some((k.parse().ok()?, m.parse().ok()?)));
    let (k, m) = code.ok_or_else(|| format!("'{text}' is not a code; write it as 4+2, or none"))?;
    Ok(Erasure::Code { k, m })
}

/// What to know about the policy; `Err`: why it cannot be kept here.
pub fn judge(durability: &Durability, room: &Room) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    if let Some(rf) = durability.rf {
        let (places, what) = if room.nodes > 1 { (room.nodes, "nodes") } else { (room.disks, "disks on this node") };
        if usize::from(rf) > places {
            return Err(format!("{rf} replicas need {rf} {what}: there are {places}"));
        }
        warnings.extend(about_replicas(rf, room));
    }
    if let Erasure::Code { k, m } = durability.erasure {
        let needed = usize::from(k) + usize::from(m);
        if room.nodes < needed {
            return Err(format!(
                "{k}+{m} needs {needed} nodes, one for each member of a strip: there are {}",
                room.nodes
            ));
        }
        if room.nodes == needed {
            warnings.push(format!("{k}+{m} on {needed} nodes leaves no node to make a lost member again on: add one"));
        }
    }
    Ok(warnings)
}

fn about_replicas(rf: u8, room: &Room) -> Option<String> {
    match (rf, room.nodes) {
        (1, _) => Some("one replica: what was on a disk that is lost is lost with it".to_owned()),
        (3, 3) => Some(
            "3 replicas on 3 nodes survive the loss of one node, for the metadata survives no more; while one is away nothing can \
             be written to this bucket"
                .to_owned(),
        ),
        (3, 4) => Some(
            "3 replicas on 4 nodes survive the loss of one node, for the metadata survives no more; a fifth node makes it two"
                .to_owned(),
        ),
        (2, 2) => Some("2 replicas on 2 nodes: while one is away nothing can be written to this bucket".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Effective, Room, judge, wished};
    use admin::operations::BucketWish;
    use types::bucket::{Durability, Erasure};

    fn room(nodes: usize, disks: usize) -> Room {
        let default_rf = match nodes {
            1 => 1,
            2..=4 => 2,
            _ => 3,
        };
        Room { nodes, disks, default_rf, default_code: ((nodes >= 8).then_some((4, 2)), 7) }
    }

    fn policy(rf: Option<u8>, erasure: Erasure) -> Durability {
        Durability { rf, erasure, erasure_after_ms: None }
    }

    #[test]
    fn what_the_cluster_cannot_hold_is_refused_with_what_it_needs() {
        let replicas = |rf| policy(Some(rf), Erasure::ByCluster);
        assert_eq!(judge(&replicas(3), &room(2, 8)), Err("3 replicas need 3 nodes: there are 2".to_owned()));
        assert_eq!(
            judge(&replicas(2), &room(1, 1)),
            Err("2 replicas need 2 disks on this node: there are 1".to_owned())
        );
        assert_eq!(judge(&replicas(2), &room(1, 2)), Ok(vec![]));
        let four_two = policy(None, Erasure::Code { k: 4, m: 2 });
        let refused = judge(&four_two, &room(5, 5)).expect_err("refused below 6 nodes");
        assert!(refused.contains("needs 6 nodes") && refused.contains("there are 5"), "{refused}");
    }

    #[test]
    fn what_is_worth_less_than_it_seems_is_said() {
        let replicas = |rf| policy(Some(rf), Erasure::ByCluster);
        let said = |durability: &Durability, nodes| judge(durability, &room(nodes, nodes)).expect("allowed").join("; ");
        assert!(said(&replicas(3), 3).contains("nothing can be written"));
        assert!(said(&replicas(3), 4).contains("survive the loss of one node"));
        assert_eq!(said(&replicas(3), 5), "");
        let four_two = policy(None, Erasure::Code { k: 4, m: 2 });
        assert!(said(&four_two, 6).contains("add one"));
        assert_eq!(said(&four_two, 7), "");
    }

    #[test]
    fn a_wish_changes_what_it_says_and_nothing_else() {
        let present = Durability { rf: Some(3), erasure: Erasure::Never, erasure_after_ms: Some(5) };
        let wish = |wish: BucketWish| wished(present, &wish);
        let ec = BucketWish { ec: Some("6+3".to_owned()), ..BucketWish::default() };
        assert_eq!(wish(ec), Ok(Durability { erasure: Erasure::Code { k: 6, m: 3 }, ..present }));
        let back = BucketWish { default: true, ..BucketWish::default() };
        assert_eq!(wish(back.clone()), Ok(Durability::default()));
        assert_eq!(wish(BucketWish { rf: Some(2), ..back }), Ok(Durability { rf: Some(2), ..Durability::default() }));
        for ec in ["4-2", "42", "4+", "1+2", "4+5", "x+y", ""] {
            assert!(wish(BucketWish { ec: Some(ec.to_owned()), ..BucketWish::default() }).is_err(), "{ec}");
        }
        assert!(wish(BucketWish { rf: Some(4), ..BucketWish::default() }).is_err());
    }

    #[test]
    fn what_a_bucket_does_not_say_follows_the_cluster_as_it_grows() {
        let of = |durability: &Durability, nodes| Effective::of(durability, &room(nodes, nodes));
        let silent = Durability::default();
        assert_eq!((of(&silent, 1).rf, of(&silent, 3).rf, of(&silent, 5).rf), (1, 2, 3));
        assert_eq!((of(&silent, 7).code, of(&silent, 8).code), (None, Some((4, 2))));
        assert_eq!(of(&policy(Some(2), Erasure::Never), 8).code, None);
        assert_eq!(of(&Durability { erasure_after_ms: Some(3), ..silent }, 8).after_ms, 3);
        assert_eq!(of(&silent, 8).after_ms, 7);
    }
}
