//! Groups that become strips on a simulated cluster: any two members lost and every byte is there, attempts that are cut off at every step,
//! members made anew, and strips that become replicas again.
#![allow(clippy::panic, dead_code)]

#[path = "../../object-controller/tests/fixture/ask.rs"]
mod ask;
mod coded;
#[path = "../../replicas/tests/net/mod.rs"]
mod net;

use coded::{Cluster, WRITER};
use curator::DifferenceKind;
use curator::view::{DiskState, Health};
use metadata::rows::ReplicaState;
use metadata::strip::StripState;
use object_controller::api::ObjectStore;
use std::collections::BTreeSet;
use std::time::Duration;
use types::bucket::Erasure;

const CODE: Erasure = Erasure::Code { k: 4, m: 2 };
const SMALL: Erasure = Erasure::Code { k: 2, m: 1 };

#[test]
fn cold_groups_become_strips_that_lose_any_two_members_and_no_byte() {
    let mut cluster = Cluster::born(1, 8, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    let before = cluster.allocated_bytes();
    cluster.rest();
    let strips = cluster.strips();
    assert!(!strips.is_empty() && strips.iter().all(|(_, strip)| strip.state == StripState::Encoded), "{strips:?}");
    for (id, strip) in &strips {
        let nodes: BTreeSet<_> = strip.groups().map(|group| cluster.node_of(group)).collect();
        assert_eq!((nodes.len(), strip.k(), strip.m()), (6, 4, 2), "{id}: {nodes:?}");
        for group in strip.groups() {
            let record = cluster.record(group);
            assert_eq!(record.replicas.len(), 1, "{record:?}");
            assert_eq!(record.replicas[0].state, ReplicaState::Whole);
        }
    }
    cluster.assert_sound("encoded");
    assert!(cluster.allocated_bytes() < before, "parity takes less than replicas");
    for (_, strip) in &strips {
        let nodes: Vec<_> = strip.groups().map(|group| cluster.node_of(group)).collect();
        for first in 0..nodes.len() {
            for second in first + 1..nodes.len() {
                let lost = [nodes[first], nodes[second]];
                cluster.without(&lost, |cluster| cluster.assert_strip_readable(strip, &format!("without {lost:?}")));
            }
        }
    }
    // What a crash of everything leaves.
    cluster.restart();
    cluster.rest();
    cluster.assert_sound("after a restart");
}

#[test]
fn lost_members_are_made_anew_on_other_nodes_data_and_parity() {
    let mut cluster = Cluster::born(2, 9, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    let (_, strip) = cluster.strips().remove(0);
    let data = strip.data.iter().map(|member| cluster.node_of(member.group)).find(|node| *node != WRITER).expect("one");
    let parity = strip.parity.iter().map(|group| cluster.node_of(*group)).find(|node| *node != WRITER).expect("one");
    for node in [data, parity] {
        cluster.net.set_down(node, true);
        cluster.view(node, |disk| disk.health = Health::Down);
    }
    cluster.rest();
    for (id, strip) in cluster.strips() {
        let nodes: BTreeSet<_> = strip.groups().map(|group| cluster.node_of(group)).collect();
        assert!(nodes.len() == 6 && !nodes.contains(&data) && !nodes.contains(&parity), "{id}: {nodes:?}");
    }
    for (_, strip) in cluster.strips() {
        cluster.assert_strip_readable(&strip, "healed");
    }
    // And again any two of what there is now.
    let (_, strip) = cluster.strips().remove(0);
    let nodes: Vec<_> = strip.groups().map(|group| cluster.node_of(group)).filter(|node| *node != WRITER).collect();
    cluster.without(&nodes[..2], |cluster| cluster.assert_strip_readable(&strip, "healed, two more lost"));
    cluster
        .without(&nodes[nodes.len() - 2..], |cluster| cluster.assert_strip_readable(&strip, "healed, two others lost"));
}

#[test]
fn a_member_is_moved_from_a_node_that_leaves_and_mended_where_it_is_damaged() {
    let mut cluster = Cluster::born(3, 8, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    let (_, strip) = cluster.strips().remove(0);
    let leaves = strip.groups().map(|group| cluster.node_of(group)).find(|node| *node != WRITER).expect("one");
    cluster.view(leaves, |disk| disk.state = DiskState::Draining);
    cluster.rest();
    let of = |cluster: &Cluster| {
        cluster
            .strips()
            .iter()
            .flat_map(|(_, strip)| strip.groups())
            .map(|group| cluster.node_of(group))
            .collect::<BTreeSet<_>>()
    };
    assert!(!of(&cluster).contains(&leaves));
    cluster.assert_sound("moved");
    cluster.view(leaves, |disk| disk.state = DiskState::Active);
    // A bit of every member of one strip in turn; of those on this node by scrub, of others by a read.
    let (_, strip) = cluster.strips().remove(0);
    for group in strip.groups() {
        let node = cluster.node_of(group);
        cluster.damage(group);
        if node == WRITER {
            let scrub = cluster.scrub();
            assert!(scrub.ok && scrub.repaired == 1, "{scrub:#?}");
        } else {
            cluster.assert_readable("damaged");
        }
        cluster.rest();
        cluster.assert_readable("mended");
    }
    for member in &strip.data {
        assert!(cluster.is_whole(member.group), "data of {} is mended", member.group);
    }
}

#[test]
fn what_dies_in_a_strip_stays_while_the_others_need_it_and_goes_with_the_strip() {
    let mut cluster = Cluster::born(4, 7, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    let strips = cluster.strips().len();
    // A third of all is deleted.
    cluster.delete(|number| number % 3 == 0);
    cluster.rest();
    assert_eq!(cluster.strips().len(), strips);
    let audit = cluster.audit();
    assert!(audit.ok && audit.frozen_bytes > 0 && audit.unpunched_bytes == 0, "{audit:#?}");
    let (_, strip) = cluster.strips().remove(0);
    let nodes: Vec<_> = strip.groups().map(|group| cluster.node_of(group)).filter(|node| *node != WRITER).collect();
    for pair in nodes.windows(2) {
        cluster
            .without(pair, |cluster| cluster.assert_strip_readable(&strip, &format!("without {pair:?}, a third dead")));
    }
    assert!(cluster.scrub().ok);
    // Most of it: the strip is not worth its parity any more.
    cluster.delete(|number| number % 3 == 1);
    cluster.rest();
    assert!(cluster.strips().is_empty(), "{:?}", cluster.strips());
    let audit = cluster.assert_sound("dissolved");
    assert_eq!((audit.frozen_bytes, audit.parity_bytes), (0, 0), "{audit:#?}");
    for node in cluster.others() {
        cluster.without(&[node], |cluster| cluster.assert_readable("replicas again"));
    }
    cluster.delete(|_| true);
    cluster.restart();
    cluster.rest();
    assert!(cluster.records().iter().all(|(_, record)| record.strip.is_none()));
}

#[test]
fn a_policy_that_is_taken_back_turns_strips_into_replicas() {
    let mut cluster = Cluster::born(5, 6, 3);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    assert!(!cluster.strips().is_empty());
    cluster.set_erasure(Erasure::Never);
    cluster.rest();
    assert!(cluster.strips().is_empty());
    let audit = cluster.assert_sound("replicas");
    assert_eq!(audit.parity_bytes, 0);
    let sealed = cluster.records().into_iter().filter(|(_, record)| record.settled);
    assert!(sealed.map(|(_, record)| record.replicas.len()).all(|count| count >= 3));
    for pair in cluster.others().windows(2) {
        cluster.without(pair, |cluster| cluster.assert_readable("three replicas"));
    }
}

#[test]
fn nothing_is_encoded_without_a_policy_a_node_or_while_one_is_missing() {
    let mut cluster = Cluster::born(6, 6, 2);
    cluster.put(40, 450_000);
    cluster.rest();
    assert!(cluster.strips().is_empty(), "nobody asked");
    cluster.set_erasure(CODE);
    cluster.view(4, |disk| disk.health = Health::Suspect);
    cluster.rest();
    assert!(cluster.strips().is_empty(), "a node does not answer");
    cluster.view(4, |disk| (disk.health, disk.free_bytes) = (Health::Up, disk.total_bytes / 10));
    cluster.rest();
    let parity_on = |cluster: &Cluster| {
        cluster.strips().iter().flat_map(|(_, strip)| strip.parity.clone()).any(|group| cluster.node_of(group) == 4)
    };
    assert!(!parity_on(&cluster), "a full disk takes none");
    cluster.view(4, |disk| disk.free_bytes = disk.total_bytes);
    cluster.rest();
    assert!(!cluster.strips().is_empty());
    cluster.assert_sound("encoded");
}

#[test]
fn parity_that_is_damaged_before_it_is_proved_makes_no_strip_and_every_replica_stays() {
    let mut cluster = Cluster::born(7, 6, 2);
    cluster.put(40, 450_000);
    cluster.rest();
    cluster.set_erasure(CODE);
    cluster.world.run_for(Duration::from_secs(6));
    let files = cluster.data_files();
    let mut damaged = BTreeSet::new();
    let report = cluster.round_watched(|cluster| {
        // As soon as it has its name it is damaged; it was read back by the disk before.
        for (_, strip) in cluster.strips() {
            for group in strip.parity {
                if !damaged.contains(&group) && cluster.has_file(group) {
                    damaged.insert(group);
                    cluster.damage(group);
                }
            }
        }
    });
    let report = report.expect("a round");
    assert!(!damaged.is_empty() && report.encoded == 0 && report.strips_given_up == 1, "{damaged:?} {report:?}");
    assert!(cluster.strips().is_empty());
    assert_eq!(cluster.data_files(), files, "no replica went, and no parity is left");
    cluster.assert_sound("given up");
}

#[test]
fn a_strip_without_a_node_for_a_lost_member_becomes_replicas_after_half_an_hour() {
    let mut cluster = Cluster::born(10, 6, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    let strips = cluster.strips();
    let gone = strips[0].1.groups().map(|group| cluster.node_of(group)).find(|node| *node != WRITER).expect("one");
    cluster.net.set_down(gone, true);
    cluster.view(gone, |disk| disk.health = Health::Down);
    cluster.rest();
    assert_eq!(cluster.strips().len(), strips.len(), "it is waited for");
    cluster.world.run_for(Duration::from_secs(31 * 60));
    cluster.rest();
    assert!(cluster.strips().is_empty());
    // Each of its groups is on two nodes that are there.
    for (_, strip) in &strips {
        for other in cluster.others().into_iter().filter(|node| *node != gone) {
            cluster.net.set_down(other, true);
            cluster.assert_strip_readable(strip, &format!("without {gone} and {other}"));
            cluster.net.set_down(other, false);
            cluster.tend();
        }
    }
}

/// Of one copy each and of two: what is bad in a member is computed while there is parity to compute it from, and parity is set aside, not
/// dropped.
#[test]
fn a_strip_is_dissolved_only_after_every_copy_that_is_counted_was_read() {
    for rf in [1, 2] {
        let mut cluster = Cluster::born(11 + u64::from(rf), 6, rf);
        cluster.set_erasure(CODE);
        cluster.put(40, 450_000);
        cluster.rest();
        let strips = cluster.strips();
        let before = cluster.audit().quarantined_files;
        for (_, strip) in &strips {
            let member = strip.data.iter().find(|member| cluster.node_of(member.group) != WRITER);
            cluster.damage(member.expect("a member elsewhere").group);
        }
        cluster.set_erasure(Erasure::Never);
        cluster.rest();
        assert!(!strips.is_empty() && cluster.strips().is_empty());
        let audit = cluster.assert_sound(&format!("{rf} replicas"));
        assert!(audit.quarantined_files >= before + 2 * strips.len() as u64, "parity is set aside: {audit:#?}");
        if rf > 1 {
            for node in cluster.others() {
                cluster.without(&[node], |cluster| cluster.assert_readable("two replicas, both sound"));
            }
        }
    }
}

#[test]
fn a_strip_with_fewer_nodes_than_members_is_a_difference_to_an_audit() {
    let mut cluster = Cluster::born(14, 6, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    cluster.assert_sound("encoded");
    let (_, strip) = cluster.strips().remove(0);
    let gone = strip.groups().map(|group| cluster.node_of(group)).find(|node| *node != WRITER).expect("one");
    // Its files are all there, but nobody can read them.
    cluster.view(gone, |disk| disk.health = Health::Down);
    let audit = cluster.audit();
    assert!(!audit.ok && audit.differences.iter().any(|one| one.what.contains("strip")), "{audit:#?}");
}

#[test]
fn a_replica_that_is_rotten_before_it_is_encoded_is_mended_and_does_not_begin_strips_for_ever() {
    let mut cluster = Cluster::born(15, 6, 2);
    cluster.put(40, 450_000);
    cluster.rest();
    // Headers are sound: only whoever reads the bytes sees it.
    for (group, record) in cluster.records() {
        if record.settled && record.length > 1 << 20 {
            cluster.damage(group);
        }
    }
    cluster.set_erasure(CODE);
    cluster.rest();
    assert!(!cluster.strips().is_empty());
    cluster.assert_sound("encoded");
    let (_, strip) = cluster.strips().remove(0);
    assert!(strip.groups().all(|group| cluster.is_whole(group)));
}

#[test]
fn a_copy_into_a_bucket_that_asks_for_no_code_does_not_refer_to_a_strip_of_another_code() {
    let mut cluster = Cluster::born(16, 6, 2);
    cluster.set_erasure(CODE);
    cluster.put(40, 450_000);
    cluster.rest();
    let (controller, from) = (cluster.controller(), cluster.bucket.clone());
    let other = cluster.world.block_on(async move {
        let other = ask::make_bucket(&controller, "other").await;
        for number in 0..10 {
            let k = format!("k{number}");
            controller.copy_object(ask::source(&from, &k, None), ask::target(&other, &k)).await.expect("a copy");
            assert!(ask::get(&controller, &other, &k, None).await.is_ok());
        }
        other
    });
    for (group, record) in cluster.records() {
        assert!(
            record.strip.is_none() || !record.buckets.contains(&other.id),
            "{group} of a code that nobody asked for"
        );
    }
    cluster.rest();
    assert!(!cluster.strips().is_empty(), "and they stay");
    cluster.assert_readable("copied");
}

#[test]
fn a_bucket_that_sets_its_replicas_does_not_stay_with_less_parity() {
    let mut cluster = Cluster::born(17, 5, 3);
    cluster.set_erasure(SMALL);
    cluster.put(16, 450_000);
    cluster.rest();
    assert!(!cluster.strips().is_empty());
    // Three replicas, and whatever code the cluster has: one piece of parity is less.
    cluster.set_erasure(Erasure::ByCluster);
    cluster.rest();
    assert!(cluster.strips().is_empty());
    cluster.assert_sound("replicas");
}

#[test]
fn a_policy_that_changes_while_a_strip_is_encoded_keeps_the_replicas() {
    let mut cluster = Cluster::born(18, 6, 2);
    cluster.put(40, 450_000);
    cluster.rest();
    cluster.set_erasure(CODE);
    cluster.world.run_for(Duration::from_secs(6));
    let mut changed = false;
    let report = cluster.round_watched(|cluster| {
        if !changed && !cluster.strips().is_empty() {
            changed = true;
            cluster.change_erasure(Erasure::Never);
        }
    });
    let report = report.expect("a round");
    assert!(changed && report.encoded == 0 && report.strips_given_up == 1, "{report:?}");
    assert!(cluster.strips().is_empty());
    cluster.assert_sound("given up");
}

/// Strips are being turned back, and then they are wanted again.
#[test]
fn a_dissolving_that_is_cut_off_at_any_step_and_taken_back_leaves_strips_on_nodes_of_their_own() {
    let mut cluster = Cluster::born(19, 4, 2);
    cluster.set_erasure(SMALL);
    cluster.put(16, 450_000);
    cluster.rest();
    let (mut at, mut cuts) = (1, 0);
    loop {
        cluster.set_erasure(Erasure::Never);
        cluster.world.run_for(Duration::from_secs(6));
        let over = cluster.round_cut(at).is_some();
        cluster.assert_files_of_records(&format!("cut at {at}"));
        cluster.assert_readable(&format!("cut at {at}"));
        cluster.set_erasure(SMALL);
        cluster.rest();
        for (id, strip) in cluster.strips() {
            let nodes: BTreeSet<_> = strip.groups().map(|group| cluster.node_of(group)).collect();
            assert_eq!(nodes.len(), 3, "cut at {at}: {id} on {nodes:?}");
        }
        cluster.assert_sound(&format!("cut at {at}"));
        if over {
            break;
        }
        cuts += 1;
        at += 1 + at / 6;
    }
    assert!(cuts > 10, "{cuts}");
}

/// The round that encodes is dropped after each of its steps in turn, on the same cluster: what is left is taken back and done again.
#[test]
fn an_encoding_that_is_cut_off_at_any_step_loses_nothing_and_is_done_again() {
    let mut cluster = Cluster::born(8, 3, 2);
    cluster.put(16, 450_000);
    cluster.rest();
    let (mut at, mut cuts, mut encoding, mut encoded) = (1, 0, 0, 0);
    loop {
        cluster.set_erasure(SMALL);
        cluster.world.run_for(Duration::from_secs(6));
        let over = cluster.round_cut(at).is_some();
        let strips = cluster.strips();
        encoding += strips.iter().filter(|(_, strip)| strip.state == StripState::Encoding).count();
        encoded += strips.iter().filter(|(_, strip)| strip.state == StripState::Encoded).count();
        cluster.assert_files_of_records(&format!("cut at {at}"));
        cluster.assert_readable(&format!("cut at {at}"));
        if cuts % 8 == 3 {
            cluster.restart();
        }
        cluster.rest();
        assert!(cluster.strips().iter().all(|(_, strip)| strip.state == StripState::Encoded), "cut at {at}");
        cluster.assert_sound(&format!("encoded after a cut at {at}"));
        cluster.set_erasure(Erasure::Never);
        cluster.rest();
        assert!(cluster.strips().is_empty());
        cluster.assert_readable(&format!("replicas after a cut at {at}"));
        if over {
            break;
        }
        cuts += 1;
        at += 1 + at / 12;
    }
    assert!(cuts > 20 && encoding > 5 && encoded > 0, "{cuts} cuts, {encoding} while encoding, {encoded} after it");
}

/// The same, where members are made anew.
#[test]
fn a_rebuild_that_is_cut_off_at_any_step_is_done_again() {
    let mut cluster = Cluster::born(9, 4, 2);
    cluster.set_erasure(SMALL);
    cluster.put(16, 450_000);
    cluster.rest();
    let (mut at, mut cuts) = (1, 0);
    loop {
        let (_, strip) = cluster.strips().remove(0);
        let place = cuts % 3;
        let node = strip.group(place).map(|group| cluster.node_of(group)).filter(|node| *node != WRITER);
        let Some(node) = node else {
            cuts += 1;
            continue;
        };
        cluster.net.set_down(node, true);
        cluster.view(node, |disk| disk.health = Health::Down);
        cluster.world.run_for(Duration::from_secs(6));
        let over = cluster.round_cut(at).is_some();
        cluster.assert_readable(&format!("cut at {at}, without {node}"));
        cluster.rest();
        cluster.assert_readable(&format!("made anew after a cut at {at}"));
        cluster.net.set_down(node, false);
        cluster.view(node, |disk| disk.health = Health::Up);
        cluster.world.run_for(Duration::from_secs(6));
        cluster.tend();
        cluster.rest();
        cluster.assert_readable("it is back");
        if over {
            break;
        }
        cuts += 1;
        at += 1 + at / 6;
    }
    let left = |kind| !matches!(kind, DifferenceKind::FileWithoutRecord);
    let audit = cluster.audit();
    assert!(!audit.differences.iter().any(|difference| left(difference.kind)), "{audit:#?}");
    assert!(cuts > 10, "{cuts}");
}
