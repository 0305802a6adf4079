//! Paths inside a disk.
//!
//! Promises: what passes here has no empty, `.` or `..` component and cannot leave the root by its text.
//! Refuses to know: whether the path exists, symbolic links (the disk refuses them when it opens).

use std::io;

/// The components of a file's path: at least one.
pub(crate) fn components(path: &str) -> io::Result<Vec<&str>> {
    let components: Vec<&str> = path.split('/').collect();
    match components.iter().all(|c| is_plain(c)) {
        true => Ok(components),
        false => Err(invalid(path)),
    }
}

/// The components of a directory's path: none for the root, written "".
pub(crate) fn dir_components(path: &str) -> io::Result<Vec<&str>> {
    if path.is_empty() { Ok(Vec::new()) } else { components(path) }
}

/// The directory's path ("" for the root) and the last component.
pub(crate) fn parent_and_name(path: &str) -> io::Result<(&str, &str)> {
    components(path)?;
    Ok(path.rsplit_once('/').unwrap_or(("", path)))
}

fn is_plain(component: &str) -> bool {
    !matches!(component, "" | "." | "..") && !component.contains('\0')
}

fn invalid(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("not a path inside a disk: {path:?}"))
}
