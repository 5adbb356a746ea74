//! API keys and the roles they have: given on the command line, and in a file that is read again when it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::roles::{Role, Roles};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Shortest key that is taken: shorter ones can be tried one by one.
const LEAST_CHARS: usize = 8;

/// Keys by their digests, so that no key lies in memory as it is, and comparing takes no time that tells about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRing {
    entries: Vec<([u8; 32], Roles)>,
}

impl KeyRing {
    /// Reads a key file: a line is `ROLE[,ROLE…] KEY` or `ROLE[,ROLE…] sha256:HEX`; `#` begins a comment.
    ///
    /// # Errors
    /// Says which line is wrong, without the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ring = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            ring.entries
                .push(entry(line).map_err(|problem| format!("line {}: {problem}", index + 1))?);
        }
        if ring.entries.is_empty() {
            return Err("has no key; a line is `ROLE[,ROLE] KEY`".to_owned());
        }
        Ok(ring)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// The key is too short.
    pub fn add(&mut self, key: &str, roles: Roles) -> Result<(), String> {
        if key.chars().count() < LEAST_CHARS {
            return Err(format!("a key must have at least {LEAST_CHARS} characters"));
        }
        self.entries.push((digest(key), roles));
        Ok(())
    }

    /// The roles of a key; `None` for one that is not known. Every entry is looked at, whichever fits.
    #[must_use]
    pub fn roles(&self, key: &str) -> Option<Roles> {
        let wanted = digest(key);
        let mut found: Option<Roles> = None;
        for (known, roles) in &self.entries {
            let differing = known
                .iter()
                .zip(&wanted)
                .fold(0, |all, (a, b)| all | (a ^ b));
            if differing == 0 {
                found = Some(found.map_or(*roles, |other| other.and(*roles)));
            }
        }
        found
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn entry(line: &str) -> Result<([u8; 32], Roles), String> {
    let (roles, key) = line
        .split_once(char::is_whitespace)
        .ok_or("must be `ROLE[,ROLE] KEY`")?;
    let roles = Roles::parse(roles)?;
    let key = key.trim();
    if let Some(hex) = key.strip_prefix("sha256:") {
        return Ok((from_hex(hex)?, roles));
    }
    if key.contains(char::is_whitespace) {
        return Err("a key must not contain white space".to_owned());
    }
    let mut one = KeyRing::default();
    one.add(key, roles)?;
    one.entries.pop().ok_or_else(String::new)
}

fn from_hex(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "after sha256: there must be 64 hexadecimal digits".to_owned();
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// The keys that count now.
#[derive(Debug, Default)]
pub struct Keys {
    given: KeyRing,
    file: Option<PathBuf>,
    current: RwLock<Arc<KeyRing>>,
}

impl Keys {
    /// Takes `given` keys, which have every role but [`Role::Admin`], and those of a file.
    ///
    /// # Errors
    /// A key is too short, or the file cannot be read or is wrong.
    pub fn new(given: &[String], file: Option<&Path>) -> Result<Self, String> {
        let mut ring = KeyRing::default();
        for key in given {
            ring.add(key, Roles::all().without(Role::Admin))
                .map_err(|problem| format!("--api-key: {problem}"))?;
        }
        let keys = Self {
            given: ring,
            file: file.map(Path::to_owned),
            current: RwLock::default(),
        };
        keys.load()?;
        Ok(keys)
    }

    /// Whether any key was configured. Without one, everything is open.
    #[must_use]
    pub fn required(&self) -> bool {
        self.file.is_some() || !self.given.entries.is_empty()
    }

    /// The roles of a key.
    #[must_use]
    pub fn roles(&self, key: &str) -> Option<Roles> {
        let ring = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        ring.roles(key)
    }

    /// Reads the file again; what cannot be read leaves the keys as they are.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn load(&self) -> Result<(), String> {
        let mut ring = self.given.clone();
        if let Some(path) = &self.file {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("--api-key-file {shown}: {error}"))?;
            let read = KeyRing::parse(&text)
                .map_err(|problem| format!("--api-key-file {shown}: {problem}"))?;
            ring.entries.extend(read.entries);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }

    /// Watches the file for as long as the server runs.
    pub async fn watch(self: Arc<Self>) {
        let Some(path) = self.file.clone() else {
            return;
        };
        let mut seen = stamp(&path);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = stamp(&path);
            if now == seen {
                continue;
            }
            seen = now;
            match self.load() {
                Ok(()) => tracing::info!("{} changed: its keys count from now on", path.display()),
                Err(problem) => tracing::error!("{problem}; the keys of before stay"),
            }
        }
    }
}

/// What changes when a file is written or replaced.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_keys_and_digests_their_roles() {
        let text = "# comment\n\ninference,render  first-key-1\nadmin other-key-1\n";
        let ring = KeyRing::parse(text).unwrap();
        let roles = ring.roles("first-key-1").unwrap();
        assert!(roles.has(Role::Inference) && roles.has(Role::Render) && !roles.has(Role::Admin));
        assert_eq!(ring.roles("first-key-2"), None);
        assert_eq!(ring.roles(""), None);
    }

    #[test]
    fn a_digest_stands_for_its_key() {
        let hex: String = digest("second-key")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let ring = KeyRing::parse(&format!("metrics sha256:{hex}")).unwrap();
        assert_eq!(ring.roles("second-key"), Some(Roles::of(Role::Metrics)));
        assert_eq!(ring.roles(&format!("sha256:{hex}")), None);
    }

    #[test]
    fn a_wrong_line_is_named_and_its_key_is_not_told() {
        let cases = [
            ("", "no key"),
            ("inference", "ROLE"),
            ("boss secret-key", "boss"),
            ("admin short", "at least 8"),
            ("admin two words-long", "white space"),
            ("admin sha256:12", "64 hexadecimal"),
        ];
        for (line, said) in cases {
            let error = KeyRing::parse(line).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(
                !error.contains("secret-key") && !error.contains("words-long"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_key_that_stands_twice_has_what_both_lines_allow() {
        let ring = KeyRing::parse("inference same-key-1\nmetrics same-key-1").unwrap();
        let roles = ring.roles("same-key-1").unwrap();
        assert!(roles.has(Role::Inference) && roles.has(Role::Metrics) && !roles.has(Role::Admin));
    }

    #[test]
    fn given_keys_may_do_all_but_administer_and_a_bad_file_keeps_the_old_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "admin file-key-1\n").unwrap();
        let keys = Keys::new(&["given-key".to_owned()], Some(&path)).unwrap();
        assert!(keys.required());
        assert!(!keys.roles("given-key").unwrap().has(Role::Admin));
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(keys.load().unwrap_err().contains("line 1"));
        assert!(keys.roles("file-key-1").unwrap().has(Role::Admin));
        std::fs::write(&path, "admin file-key-2\n").unwrap();
        keys.load().unwrap();
        assert_eq!(keys.roles("file-key-1"), None);
        assert!(keys.roles("given-key").is_some());
    }

    #[test]
    fn without_keys_nothing_is_asked() {
        assert!(!Keys::new(&[], None).unwrap().required());
        assert!(Keys::new(&["short".to_owned()], None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "inference file-key-1\n").unwrap();
        let keys = Arc::new(Keys::new(&[], Some(&path)).unwrap());
        let watch = tokio::spawn(Arc::clone(&keys).watch());
        tokio::task::yield_now().await;
        std::fs::write(&path, "inference file-key-one\n").unwrap();
        while keys.roles("file-key-one").is_none() {
            tokio::time::sleep(LOOK).await;
        }
        assert_eq!(keys.roles("file-key-1"), None);
        watch.abort();
    }
}
