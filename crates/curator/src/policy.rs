//! What the policies of a group's buckets ask of it (protocols.md 1 and 12). Values in, values out.
//!
//! Promises: the largest requirement counts, whoever asks; a bucket that exists no more asks for nothing. Refuses to know: what the
//! group has; which disks there are.
//!
//! `buckets` and the record must be read at *one* position of root: a set of buckets older than the record may lack the very bucket
//! that was added last, and then the group would seem to be nobody's. Bucket ids are never used again, so one that is missing there
//! is gone for good.

use metadata::rows::{GroupRecord, GroupState};
use std::collections::BTreeMap;
use types::BucketId;
use types::bucket::{BucketInfo, Erasure};

/// Replicas that the group must have: the largest over its buckets; 1 if none of them exists any more. A group that is not sealed
/// has no set yet: what it was opened for is its requirement.
pub fn required_rf(buckets: &BTreeMap<BucketId, BucketInfo>, record: &GroupRecord, default_rf: u8) -> u8 {
    if matches!(record.state, GroupState::Open | GroupState::Sealing) {
        return record.rf.max(1);
    }
    of_set(buckets, record).map(|bucket| bucket.durability.replicas(default_rf)).fold(1, u8::max)
}

/// The code that all buckets of a sealed group allow, (k, m), and the longest of their delays since its sealing, in milliseconds.
/// `default` is what the cluster does for buckets that leave it open: its code, if it has one, and its delay. `None`: it stays
/// replicas; so does a group whose buckets are all gone, for it is about to be dropped.
pub fn erasure_of(
    buckets: &BTreeMap<BucketId, BucketInfo>,
    record: &GroupRecord,
    (default_code, default_after_ms): (Option<(u8, u8)>, u64),
) -> Option<(u8, u8, u64)> {
    if record.state != GroupState::Sealed {
        return None;
    }
    let mut all = None;
    for BucketInfo { durability, .. } in of_set(buckets, record) {
        let (k, m) = match durability.erasure {
            Erasure::ByCluster => default_code?,
            Erasure::Never => return None,
            Erasure::Code { k, m } => (k, m),
        };
        let after_ms = durability.erasure_after_ms.unwrap_or(default_after_ms);
        all = match all {
            None => Some((k, m, after_ms)),
            Some((other_k, other_m, longest)) if (other_k, other_m) == (k, m) => Some((k, m, after_ms.max(longest))),
            Some(_) => return None,
        };
    }
    all
}

fn of_set<'a>(
    buckets: &'a BTreeMap<BucketId, BucketInfo>,
    record: &'a GroupRecord,
) -> impl Iterator<Item = &'a BucketInfo> {
    record.buckets.iter().filter_map(|id| buckets.get(id))
}

#[cfg(test)]
mod tests {
    use super::{erasure_of, required_rf};
    use metadata::rows::{GroupRecord, GroupState};
    use std::collections::BTreeMap;
    use types::bucket::{BucketConfigs, BucketInfo, Durability, Erasure, Versioning};
    use types::{BucketId, BucketName};

    fn record(buckets: &[u64]) -> GroupRecord {
        GroupRecord {
            state: GroupState::Sealed,
            generation: 2,
            rf: 2,
            replicas: Vec::new(),
            length: 4096,
            writer: (1, 1),
            settled: true,
            account: None,
            buckets: buckets.iter().copied().map(BucketId).collect(),
            dead: Vec::new(),
            sealed_ms: 0,
            strip: None,
        }
    }

    fn buckets(policies: &[Durability]) -> BTreeMap<BucketId, BucketInfo> {
        let of = |(index, durability): (usize, &Durability)| {
            let id = BucketId(index as u64);
            let info = BucketInfo {
                id,
                name: BucketName::new(&format!("bucket-{index}")).expect("valid"),
                owner: String::new(),
                created_ms: 0,
                generation: 1,
                versioning: Versioning::Off,
                location: String::new(),
                configs: BucketConfigs::default(),
                durability: *durability,
            };
            (id, info)
        };
        policies.iter().enumerate().map(of).collect()
    }

    fn rf(rf: u8) -> Durability {
        Durability { rf: Some(rf), ..Durability::default() }
    }

    fn code(k: u8, m: u8, after_ms: Option<u64>) -> Durability {
        Durability { rf: None, erasure: Erasure::Code { k, m }, erasure_after_ms: after_ms }
    }

    #[test]
    fn the_bucket_that_asks_for_most_counts() {
        let all = buckets(&[rf(1), rf(3), Durability::default()]);
        assert_eq!(required_rf(&all, &record(&[0, 1, 2]), 2), 3);
        assert_eq!(required_rf(&all, &record(&[0, 2]), 2), 2, "one that leaves it open asks for the cluster's");
        assert_eq!(required_rf(&all, &record(&[0]), 2), 1);
    }

    #[test]
    fn a_bucket_that_is_gone_asks_for_nothing() {
        let all = buckets(&[rf(1)]);
        assert_eq!(required_rf(&all, &record(&[0, 7]), 3), 1);
        assert_eq!(required_rf(&all, &record(&[7]), 3), 1);
        assert_eq!(required_rf(&all, &record(&[]), 3), 1);
        assert_eq!(erasure_of(&all, &record(&[7]), (Some((4, 2)), 9)), None);
    }

    #[test]
    fn a_group_that_is_not_sealed_needs_what_it_was_opened_for() {
        let all = buckets(&[rf(3)]);
        for state in [GroupState::Open, GroupState::Sealing] {
            let open = GroupRecord { state, ..record(&[0]) };
            assert_eq!(required_rf(&all, &open, 1), 2);
            assert_eq!(erasure_of(&all, &open, (Some((4, 2)), 9)), None);
        }
    }

    #[test]
    fn a_group_is_encoded_if_every_bucket_allows_the_same_code_and_after_the_longest_delay() {
        let never = Durability { erasure: Erasure::Never, ..Durability::default() };
        let cluster = (Some((4, 2)), 7);
        let all = buckets(&[code(4, 2, Some(3)), code(4, 2, None), Durability::default(), never, code(6, 3, Some(1))]);
        assert_eq!(erasure_of(&all, &record(&[0]), cluster), Some((4, 2, 3)));
        assert_eq!(erasure_of(&all, &record(&[0, 1, 2]), cluster), Some((4, 2, 7)));
        assert_eq!(erasure_of(&all, &record(&[0, 3]), cluster), None, "one of them says never");
        assert_eq!(erasure_of(&all, &record(&[0, 4]), cluster), None, "two codes");
        assert_eq!(erasure_of(&all, &record(&[0, 2]), (None, 7)), None, "the cluster has no code");
        assert_eq!(erasure_of(&all, &record(&[4]), (None, 7)), Some((6, 3, 1)), "it asks for its own");
    }
}
