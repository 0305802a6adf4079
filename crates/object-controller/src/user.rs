//! Accounts: made, found, removed.
//!
//! Promises: names and access keys are unique, root's included; keys that were not given are random. Refuses to know: who asks.

use crate::api::{Account, Credential, NewUser, StoreError};
use crate::controller::Controller;
use env::random::Random;
use metadata::command::RootCommand;
use std::sync::Arc;

/// Characters of a minted access key, as AWS's.
const ACCESS_KEY_CHARS: usize = 20;
/// Characters of a minted secret key, as AWS's: 40 of 62 are 238 bits.
const SECRET_KEY_CHARS: usize = 40;

impl Controller {
    /// The credential of `access_key`, root's included.
    pub(crate) fn find_credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        let root = self.root_credential();
        if root.access_key == access_key {
            return Some(root.clone());
        }
        self.directory().user_by_access_key(access_key)
    }

    /// Adds an account. *Acknowledged* when it answers `Ok`.
    pub(crate) async fn add_user(&self, user: NewUser) -> Result<Arc<Credential>, StoreError> {
        check_name(&user.name)?;
        let random = self.env().random.clone();
        let access_key = user.access_key.unwrap_or_else(|| minted(&*random, UPPER_AND_DIGITS, ACCESS_KEY_CHARS));
        let secret_key = user.secret_key.unwrap_or_else(|| minted(&*random, LETTERS_AND_DIGITS, SECRET_KEY_CHARS));
        if !(3..=128).contains(&access_key.len()) || secret_key.len() < 8 {
            return Err(StoreError::InvalidState("access key or secret key of an invalid length".into()));
        }
        if access_key == self.root_credential().access_key {
            return Err(StoreError::UserExists);
        }
        let account = Account {
            canonical_id: minted(&*random, HEX, 64),
            display_name: user.name,
            email: user.email.unwrap_or_default(),
            is_root: false,
        };
        let credential = Credential { access_key, secret_key, account };
        self.proposer().root(RootCommand::CreateUser(credential.clone())).await?;
        self.nodes().spread().await?;
        Ok(Arc::new(credential))
    }

    /// Removes an account that owns no bucket.
    pub(crate) async fn remove_user(&self, name: &str) -> Result<(), StoreError> {
        self.proposer().root(RootCommand::DeleteUser(name.to_owned())).await?;
        self.nodes().spread().await?;
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    Err(StoreError::InvalidState("not a user name".into()))
}

const UPPER_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTERS_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &[u8] = b"0123456789abcdef";

/// `count` characters of `alphabet`, each as likely as the others.
fn minted(random: &dyn Random, alphabet: &[u8], count: usize) -> String {
    // Bytes at or above the largest multiple of the alphabet's length are drawn again: no character is favoured.
    let fair = 256 - 256 % alphabet.len();
    let mut text = String::with_capacity(count);
    let mut drawn = [0; 64];
    while text.len() < count {
        random.fill(&mut drawn);
        let fresh = drawn.iter().map(|b| usize::from(*b)).filter(|b| *b < fair);
        text.extend(fresh.take(count - text.len()).map(|b| char::from(alphabet[b % alphabet.len()])));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{HEX, LETTERS_AND_DIGITS, minted};
    use env::random::SimRandom;

    #[test]
    fn minted_texts_have_the_wanted_length_and_alphabet_and_differ() {
        let random = SimRandom::new(3);
        let texts: Vec<String> = (0..50).map(|_| minted(&random, LETTERS_AND_DIGITS, 40)).collect();
        for text in &texts {
            assert!(text.len() == 40 && text.bytes().all(|b| LETTERS_AND_DIGITS.contains(&b)), "{text}");
            assert_eq!(texts.iter().filter(|t| *t == text).count(), 1);
        }
        assert_eq!(minted(&random, HEX, 64).len(), 64);
    }
}
