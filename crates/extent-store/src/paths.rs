//! Names of files on a disk, and back.
//!
//! Promises: what [`group_file`] and its kin make, the parsers read; anything else is a stranger and stays untouched.
//! Refuses to know: whether the files exist.

use types::GroupId;

/// Directory of the group files.
pub(crate) const EXTENTS: &str = "extents";
/// Directory of the fences.
pub(crate) const FENCES: &str = "fences";
/// Directory of what was set aside.
pub(crate) const QUARANTINE: &str = "quarantine";
/// End of the name of a file that is still being made; such a file was never anybody's and is removed at start.
pub(crate) const UNFINISHED: &str = ".new";
/// End of the name of the text beside a quarantined file.
pub(crate) const REASON: &str = ".reason";

/// A group file: group and file generation.
pub(crate) type FileKey = (GroupId, u32);

/// Directory of a group's files; the high bits of a group id are random, so 256 directories share them evenly.
pub(crate) fn group_dir(group: GroupId) -> String {
    format!("{EXTENTS}/{:02x}", group.0 >> 56)
}

pub(crate) fn group_file((group, generation): FileKey) -> String {
    format!("{}/{group}.{generation:08x}", group_dir(group))
}

pub(crate) fn fence_file(group: GroupId, generation: u32, length: u64) -> String {
    format!("{FENCES}/{group}.{generation:08x}.{length:016x}")
}

pub(crate) fn quarantine_name((group, generation): FileKey, since_ms: u64) -> String {
    format!("{group}.{generation:08x}.{since_ms:016x}")
}

/// `<group>.<generation>` in directory `dir` (two hex digits).
pub(crate) fn parse_group_file(dir: &str, name: &str) -> Option<FileKey> {
    let (group, generation) = name.split_once('.')?;
    let key = (group.parse::<GroupId>().ok()?, fixed_hex(generation, 8)? as u32);
    // The canonical form only: capital digits or another directory are a stranger.
    (group_file(key) == format!("{EXTENTS}/{dir}/{name}")).then_some(key)
}

/// `<group>.<8 hex>.<16 hex>`: a fence or a quarantined file.
pub(crate) fn parse_triple(name: &str) -> Option<(GroupId, u32, u64)> {
    let mut fields = name.split('.');
    let (group, generation, last) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() {
        return None;
    }
    Some((group.parse().ok()?, fixed_hex(generation, 8)? as u32, fixed_hex(last, 16)?))
}

fn fixed_hex(text: &str, digits: usize) -> Option<u64> {
    let sound = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    sound.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::{fence_file, group_file, parse_group_file, parse_triple};
    use types::GroupId;

    #[test]
    fn names_survive_the_way_to_text_and_back() {
        let key = (GroupId(0xab00_0000_0000_0001), 7);
        assert_eq!(group_file(key), "extents/ab/ab00000000000001.00000007");
        assert_eq!(parse_group_file("ab", "ab00000000000001.00000007"), Some(key));
        assert_eq!(fence_file(key.0, 8, 4096), "fences/ab00000000000001.00000008.0000000000001000");
        assert_eq!(parse_triple("ab00000000000001.00000008.0000000000001000"), Some((key.0, 8, 4096)));
    }

    #[test]
    fn names_that_we_never_make_are_strangers() {
        for (dir, name) in [
            ("ac", "ab00000000000001.00000007"),
            ("ab", "AB00000000000001.00000007"),
            ("ab", "ab00000000000001.7"),
            ("ab", "ab00000000000001.+0000007"),
            ("ab", "ab00000000000001.00000007.new"),
            ("ab", "lost+found"),
            ("ab", ""),
        ] {
            assert_eq!(parse_group_file(dir, name), None, "{name}");
        }
        assert_eq!(parse_triple("ab00000000000001.00000008"), None);
        assert_eq!(parse_triple("ab00000000000001.00000008.0000000000001000.reason"), None);
    }
}
