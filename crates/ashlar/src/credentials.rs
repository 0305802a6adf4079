//! The root key pair: from the environment, else from a data folder, else made once, at the birth of the store, and kept (0600).
//!
//! Promises: the order of the data folders changes nothing; a store that has been born gets no other keys by itself; there are as
//! many copies as of the data. Refuses to know: other accounts.

use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The keys that open everything. `Debug` never shows the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RootKeys {
    pub access_key: String,
    pub secret_key: String,
}

impl std::fmt::Debug for RootKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RootKeys({})", self.access_key)
    }
}

const FILE: &str = "credentials";
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The keys for a client: the environment's, else the data folder's.
pub fn find(data_dir: &Path) -> io::Result<RootKeys> {
    if let Some(keys) = from_environment()? {
        return Ok(keys);
    }
    load(data_dir)?.ok_or_else(|| {
        let message = format!(
            "no root keys: set ASHLAR_ROOT_ACCESS_KEY and ASHLAR_ROOT_SECRET_KEY, or name the server's data folder with --data-dir (looked in {})",
            data_dir.display()
        );
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Where a server keeps its keys.
pub struct Place<'a> {
    /// The data folders; all are there.
    pub folders: &'a [PathBuf],
    /// How many of them keep the keys.
    pub copies: usize,
    /// Whether the store is being born: only then keys are made.
    pub newborn: bool,
}

/// The keys for a server, and whether they were made just now.
pub fn find_or_make(place: &Place<'_>, random: impl Fn(&mut [u8])) -> io::Result<(RootKeys, bool)> {
    if let Some(keys) = from_environment()? {
        return Ok((keys, false));
    }
    let mut found = Vec::new();
    for folder in place.folders {
        found.extend(load(folder)?.map(|keys| (folder, keys)));
    }
    let Some((first, keys)) = found.first() else { return make(place, &random) };
    for (folder, _) in found.iter().filter(|(_, other)| other != keys) {
        tracing::warn!(used = %first.display(), other = %folder.display(), "two data folders keep different root keys");
    }
    let without = place.folders.iter().filter(|folder| found.iter().all(|(other, _)| other != folder));
    for folder in without.take(place.copies.saturating_sub(found.len())) {
        store(folder, keys)?;
    }
    Ok((keys.clone(), false))
}

/// Keeps the keys of the cluster that this node joined.
pub fn keep(place: &Place<'_>, keys: &RootKeys) -> io::Result<()> {
    place.folders.iter().take(place.copies).try_for_each(|folder| store(folder, keys))
}

fn make(place: &Place<'_>, random: &impl Fn(&mut [u8])) -> io::Result<(RootKeys, bool)> {
    if !place.newborn {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "none of the data folders holds the root keys (the file `credentials`), and the store is not new: put the file back, \
             or set ASHLAR_ROOT_ACCESS_KEY and ASHLAR_ROOT_SECRET_KEY; they may be new ones",
        ));
    }
    let keys = RootKeys { access_key: format!("ASHLAR{}", mint(14, random)), secret_key: mint(40, random) };
    for folder in place.folders.iter().take(place.copies) {
        store(folder, &keys)?;
    }
    Ok((keys, true))
}

fn from_environment() -> io::Result<Option<RootKeys>> {
    let get = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    match (get("ASHLAR_ROOT_ACCESS_KEY"), get("ASHLAR_ROOT_SECRET_KEY")) {
        (None, None) => Ok(None),
        (Some(access_key), Some(secret_key)) if access_key.len() >= 3 && secret_key.len() >= 8 => {
            Ok(Some(RootKeys { access_key, secret_key }))
        }
        (Some(_), Some(_)) => Err(io::Error::other(
            "ASHLAR_ROOT_ACCESS_KEY needs at least 3 characters and ASHLAR_ROOT_SECRET_KEY at least 8",
        )),
        _ => Err(io::Error::other("set both ASHLAR_ROOT_ACCESS_KEY and ASHLAR_ROOT_SECRET_KEY, or neither")),
    }
}

fn load(data_dir: &Path) -> io::Result<Option<RootKeys>> {
    let path = data_dir.join(FILE);
    let meta = match std::fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if !meta.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{0} can be read by others: run `chmod 600 {0}`", path.display())));
    }
    let text = std::fs::read_to_string(&path)?;
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    match (field("access_key"), field("secret_key")) {
        (Some(access_key), Some(secret_key)) => Ok(Some(RootKeys { access_key, secret_key })),
        _ => {
            Err(io::Error::other(format!("{} is damaged: it must hold access_key=… and secret_key=…", path.display())))
        }
    }
}

/// New file, synced, renamed: a crash leaves the old state or the new one.
fn store(data_dir: &Path, keys: &RootKeys) -> io::Result<()> {
    let temporary = data_dir.join(format!("{FILE}.new"));
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "access_key={}\nsecret_key={}", keys.access_key, keys.secret_key)?;
    file.sync_all()?;
    std::fs::rename(&temporary, data_dir.join(FILE))?;
    std::fs::File::open(data_dir)?.sync_all()
}

fn mint(length: usize, random: &impl Fn(&mut [u8])) -> String {
    let mut bytes = vec![0; length];
    random(&mut bytes);
    bytes.iter().map(|b| char::from(ALPHABET[usize::from(b % 32)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folders: &[PathBuf], newborn: bool) -> Place<'_> {
        Place { folders, copies: 1, newborn }
    }

    #[test]
    fn keys_are_made_once_and_only_their_owner_can_read_them() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folders = [dir.path().to_owned()];
        let (made, new) = find_or_make(&place(&folders, true), |b| b.fill(7)).expect("makes keys");
        assert!(new && made.access_key.len() == 20 && made.secret_key.len() == 40);
        let (again, new) = find_or_make(&place(&folders, true), |b| b.fill(9)).expect("reads keys");
        assert!(!new && again == made);
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).expect("exists").permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        assert!(find_or_make(&place(&folders, true), |b| b.fill(9)).is_err(), "a readable secret is refused");
        assert!(!format!("{made:?}").contains(&made.secret_key));
    }

    #[test]
    fn a_planted_link_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(FILE)).expect("link");
        assert!(find_or_make(&place(&[dir.path().to_owned()], true), |b| b.fill(7)).is_err());
    }

    #[test]
    fn a_store_that_is_born_keeps_its_keys_whatever_the_order_of_its_folders() {
        let (a, b) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (there, back) = ([a.path().to_owned(), b.path().to_owned()], [b.path().to_owned(), a.path().to_owned()]);
        assert!(find_or_make(&place(&there, false), |b| b.fill(7)).is_err(), "none are made later");
        let (made, _) = find_or_make(&place(&there, true), |b| b.fill(7)).expect("makes keys");
        assert!(!b.path().join(FILE).exists(), "as many copies as wanted");
        assert!(find_or_make(&place(&back, false), |b| b.fill(9)).expect("reads keys") == (made.clone(), false));
        assert!(!b.path().join(FILE).exists());
        let two = Place { copies: 2, ..place(&back, false) };
        find_or_make(&two, |b| b.fill(9)).expect("reads keys");
        std::fs::remove_file(a.path().join(FILE)).expect("lost with its disk");
        assert!(find_or_make(&two, |b| b.fill(9)).expect("reads the copy") == (made, false));
    }
}
