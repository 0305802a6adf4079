//! Whose disk it is.

mod fixture;

use env::disk::{Caching, Open};
use env::sim_disk::{CrashPolicy, SimDisk};
use extent_store::{DiskIdentity, DiskStore, IdentityError, SetError, StoreSet};
use fixture::{CLUSTER, DISK, World, on_all, sim_disk};
use std::sync::Arc;
use types::{ClusterId, DiskId};

#[test]
fn each_start_is_a_new_incarnation() {
    on_all(|_, disk| {
        assert_eq!(DiskIdentity::start(&*disk, CLUSTER, 1).expect("an empty folder"), None);
        assert_eq!(DiskIdentity::create(&*disk, CLUSTER, 1, DISK).expect("an empty folder").incarnation, 1);
        for incarnation in 2..5 {
            let identity = DiskIdentity::start(&*disk, CLUSTER, 1).expect("our disk").expect("born");
            assert_eq!((identity.disk, identity.incarnation), (DISK, incarnation));
        }
    });
}

#[test]
fn foreign_damaged_and_nameless_disks_are_refused_and_not_touched() {
    on_all(|_, disk| {
        DiskIdentity::create(&*disk, CLUSTER, 1, DISK).expect("an empty folder");
        let foreign = DiskIdentity::start(&*disk, ClusterId(9), 1);
        assert!(matches!(foreign, Err(IdentityError::ForeignCluster { .. })), "{foreign:?}");
        let foreign = DiskIdentity::start(&*disk, CLUSTER, 2);
        assert!(matches!(foreign, Err(IdentityError::ForeignNode { found: 1, expected: 2 })), "{foreign:?}");
        let again = DiskIdentity::create(&*disk, CLUSTER, 1, DiskId(7));
        assert!(matches!(again, Err(IdentityError::AlreadyBorn(DISK))), "{again:?}");
        assert_eq!(DiskIdentity::read(&*disk).expect("sound").map(|identity| identity.incarnation), Some(1));
        let file = disk.open("identity", Open::ReadWrite, Caching::Buffered).expect("there");
        file.write_at(&[0xff], 20).expect("written");
        let damaged = DiskIdentity::start(&*disk, CLUSTER, 1);
        assert!(matches!(damaged, Err(IdentityError::Damaged(_))), "{damaged:?}");
        let damaged = DiskIdentity::create(&*disk, CLUSTER, 1, DISK);
        assert!(matches!(damaged, Err(IdentityError::Damaged(_))), "{damaged:?}");
    });
}

#[test]
fn a_crash_at_any_moment_of_birth_or_start_leaves_a_disk_that_starts() {
    let policies =
        [CrashPolicy::KeepNone, CrashPolicy::KeepAll, CrashPolicy::RandomSubset(1), CrashPolicy::RandomWithGarbage(2)];
    let born = sim_disk(1);
    DiskIdentity::create(&born, CLUSTER, 1, DISK).expect("an empty folder");
    let begin = |disk: &SimDisk| match DiskIdentity::start(disk, CLUSTER, 1)? {
        Some(identity) => Ok(identity),
        None => DiskIdentity::create(disk, CLUSTER, 1, DISK),
    };
    for (start, at_least) in [(sim_disk(1), 0), (born, 1)] {
        let whole = start.fork();
        let before = whole.mutations();
        begin(&whole).expect("a sound disk");
        for last in before..=whole.mutations() {
            let disk = start.fork();
            disk.crash_after(last);
            let acknowledged = begin(&disk).map_or(at_least, |identity| identity.incarnation);
            for policy in policies {
                let found = DiskIdentity::read(&disk.crash(policy)).expect("whole or not there");
                let incarnation = found.map_or(0, |identity| identity.incarnation);
                assert!(incarnation >= acknowledged, "crash after {last}, {policy:?}: {incarnation}");
                begin(&disk.crash(policy)).expect("a disk that starts");
            }
        }
    }
}

#[test]
fn disks_of_one_node_go_together_and_a_copied_folder_does_not() {
    let world = World::simulated(1);
    let store = |cluster, node, id| {
        let disk = Arc::new(sim_disk(1));
        let identity = DiskIdentity::create(&*disk, cluster, node, DiskId(id)).expect("an empty folder");
        DiskStore::open(&world.env, disk, identity, world.config()).expect("a sound disk").0
    };
    let set = StoreSet::new([store(CLUSTER, 1, 1), store(CLUSTER, 1, 2)]).expect("two disks");
    assert_eq!((set.len(), set.get(DiskId(2)).map(DiskStore::id)), (2, Some(DiskId(2))));
    let refused = |other| StoreSet::new([store(CLUSTER, 1, 1), other]).map(|set| set.len());
    assert_eq!(refused(store(CLUSTER, 1, 1)), Err(SetError::Duplicate(DiskId(1))));
    assert!(matches!(refused(store(ClusterId(5), 1, 2)), Err(SetError::MixedClusters { .. })));
    assert!(matches!(refused(store(CLUSTER, 2, 2)), Err(SetError::MixedNodes { .. })));
}
