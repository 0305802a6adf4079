//! What the metadata says lies in the extent groups: every extent of every `body` row that has extents of its own.
//!
//! Promises: an answer is complete for its groups or an error (rule R30); memory is bounded, a large store takes several walks.
//! Refuses to know: what lies on the disks.

use crate::ranges;
use extent_store::Frame;
use metadata::read::{ReadError, content};
use metadata::rows::{BodyRow, Condemned, ContentBytes, Home, Run};
use metadata::shard::KeyRange;
use metadata::tree::Read;
use std::collections::{BTreeMap, BTreeSet};
use types::{ContentId, GroupId};

/// One extent that a content names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) content: ContentId,
    /// Its place in the content.
    pub(crate) index: u32,
    pub(crate) payload_bytes: u32,
    /// The content is condemned: nobody will miss it.
    pub(crate) owed: bool,
}

impl Extent {
    /// Where its frame lies.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.offset, Frame::bytes_for(self.payload_bytes))
    }
}

/// The extents of some groups.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Sorted by offset.
    pub(crate) groups: BTreeMap<GroupId, Vec<Extent>>,
    /// First group that is not in this page.
    pub(crate) next: Option<GroupId>,
}

/// The extents of the groups from `from` on, at most about `max` of them.
pub(crate) fn page(read: &dyn Read, keys: &[KeyRange], from: GroupId, max: usize) -> Result<Page, ReadError> {
    let mut page = Page::default();
    let mut held = 0;
    for range in keys {
        contents(read, range, |found| {
            for (group, extent) in found.extents() {
                if group < from || page.next.is_some_and(|next| group >= next) {
                    continue;
                }
                page.groups.entry(group).or_default().push(extent);
                held += 1;
                while held > max && page.groups.len() > 1 {
                    let Some((last, extents)) = page.groups.pop_last() else { break };
                    held -= extents.len();
                    page.next = Some(last);
                }
            }
        })?;
    }
    for extents in page.groups.values_mut() {
        extents.sort_unstable_by_key(|extent| extent.offset);
        extents.shrink_to_fit();
    }
    Ok(page)
}

/// The extents of these groups, with the keys that wrote them.
pub(crate) fn of_groups(
    read: &dyn Read,
    keys: &[KeyRange],
    groups: &BTreeSet<GroupId>,
) -> Result<BTreeMap<GroupId, Vec<(Home, Extent)>>, ReadError> {
    let mut all: BTreeMap<GroupId, Vec<(Home, Extent)>> = BTreeMap::new();
    for range in keys {
        contents(read, range, |found| {
            for (group, extent) in found.extents() {
                if groups.contains(&group) {
                    all.entry(group).or_default().push((found.home.clone(), extent));
                }
            }
        })?;
    }
    for extents in all.values_mut() {
        extents.sort_unstable_by_key(|(_, extent)| extent.offset);
    }
    Ok(all)
}

/// A content with extents.
struct Found {
    home: Home,
    content: ContentId,
    owed: bool,
    runs: Vec<Run>,
}

impl Found {
    fn extents(&self) -> impl Iterator<Item = (GroupId, Extent)> {
        let frames = self.runs.iter().flat_map(|run| ranges::frames(run).map(|frame| (run.group, frame)));
        frames.zip(0..).map(|((group, (offset, payload_bytes)), index)| {
            let extent = Extent { offset, content: self.content, index, payload_bytes, owed: self.owed };
            (group, extent)
        })
    }
}

/// Walks the contents of a range beside the condemned rows, which have the same order.
fn contents(read: &dyn Read, range: &KeyRange, mut each: impl FnMut(&Found)) -> Result<(), ReadError> {
    let mut condemned = content::condemned(read, range, None).peekable();
    for row in content::bodies(read, range) {
        let (home, id, body) = row?;
        let BodyRow::Content { bytes: ContentBytes::Extents { runs, .. }, .. } = body else { continue };
        let mut owed = false;
        while let Some(next) = condemned.peek() {
            let Ok((at, condemned_id, row)) = next else { break };
            match (at, condemned_id).cmp(&(&home, &id.id)) {
                std::cmp::Ordering::Greater => break,
                std::cmp::Ordering::Equal => {
                    owed = row.what == Condemned::Content;
                    break;
                }
                std::cmp::Ordering::Less => {}
            }
            condemned.next();
        }
        if condemned.peek().is_some_and(Result::is_err) {
            // Given back by the iterator: the walk ends with it.
            condemned.next().transpose()?;
        }
        each(&Found { home, content: id.id, owed, runs });
    }
    Ok(())
}
