//! Who asks, for limits, the access log and what is kept for a client: never the key itself.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::peer::San;

const KEY: u8 = b'k';
const NAME: u8 = b's';

/// Whose request it is: a key by its digest, a certificate by its first name, or nobody where no key is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Caller(Vec<u8>);

impl Caller {
    pub(crate) fn of_key(key: &str) -> Self {
        let mut bytes = vec![KEY];
        bytes.extend(Sha256::digest(key.as_bytes()));
        Self(bytes)
    }

    pub(crate) fn of_names(names: &[San]) -> Self {
        let first = names.first().map_or_else(String::new, San::to_string);
        let mut bytes = vec![NAME];
        bytes.extend(first.into_bytes());
        Self(bytes)
    }

    /// The bytes by which callers differ.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A caller that was kept.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_owned())
    }
}

impl fmt::Display for Caller {
    /// Writes the beginning of the key's digest, as `sha256sum` shows it, or the certificate's first name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_first() {
            Some((&NAME, name)) => write!(f, "san:{}", String::from_utf8_lossy(name)),
            Some((_, digest)) => {
                f.write_str("key:")?;
                digest
                    .iter()
                    .take(6)
                    .try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            None => f.write_str("anybody"),
        }
    }
}
