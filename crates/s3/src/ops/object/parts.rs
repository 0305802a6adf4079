//! A part of an object by its number.
//!
//! Promises: few rows are read, however many parts the object has. Refuses to know: what is done with the part.

use crate::error::S3Result;
use object_controller::api::ReadHandle;

/// Where the first part stands whose number is at least `number`; `count` if there is none.
pub async fn first_from(handle: &dyn ReadHandle, count: u32, number: u32) -> S3Result<u32> {
    // Numbers ascend from 1 and gaps only push a part forward, so it stands at `number - 1` or before.
    let (mut low, mut high) = (0, count.min(number.saturating_sub(1)));
    // Without gaps the first look is the last one.
    let mut look = high.saturating_sub(1);
    while low < high {
        match handle.parts(look, 1).await?.first() {
            Some(part) if part.number < number => low = look + 1,
            _ => high = look,
        }
        look = low + (high - low) / 2;
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::first_from;
    use object_controller::api::{ObjectInfo, PartInfo, ReadBody, ReadHandle, StoreError};
    use std::future::{Future, ready};
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An object with parts of these numbers; counts the looks.
    struct Parts(Vec<u32>, AtomicUsize);

    impl ReadHandle for Parts {
        fn info(&self) -> &ObjectInfo {
            unreachable!("only parts are looked at")
        }
        fn parts(
            &self,
            index: u32,
            max: u32,
        ) -> Pin<Box<dyn Future<Output = Result<Vec<PartInfo>, StoreError>> + Send + '_>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let some = self.0.iter().skip(index as usize).take(max as usize);
            let of = |number: &u32| PartInfo { number: *number, offset: 0, size: 1, checksum: None };
            Box::pin(ready(Ok(some.map(of).collect())))
        }
        fn read(self: Box<Self>, _: u64, _: u64) -> Box<dyn ReadBody> {
            unreachable!("only parts are looked at")
        }
    }

    #[tokio::test]
    async fn a_part_is_found_with_few_looks_whatever_gaps_the_numbers_have() {
        let dense: Vec<u32> = (1..=10_000).collect();
        let gaps: Vec<u32> = (1..=10_000).filter(|n| n % 3 == 0).collect();
        for (numbers, most_looks) in [(dense, 1), (gaps, 14), (vec![7], 2), (vec![10_000], 2)] {
            for number in (1..=10_001).step_by(7).chain([1, 10_000, 10_001, u32::MAX]) {
                let parts = Parts(numbers.clone(), AtomicUsize::new(0));
                let found = first_from(&parts, numbers.len() as u32, number).await.expect("found");
                assert_eq!(found as usize, numbers.partition_point(|n| *n < number), "{number}");
                assert!(parts.1.load(Ordering::Relaxed) <= most_looks, "{number}: {:?}", parts.1);
            }
        }
    }
}
