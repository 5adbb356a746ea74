//! API keys and the roles they have: given on the command line, and in a file that is read again when it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

use crate::peer::{San, SanRule};
use crate::reload::Reload;
use crate::roles::{Role, Roles};

/// Shortest key that is taken: shorter ones can be tried one by one.
const LEAST_CHARS: usize = 8;

/// Keys by their digests, so that no key lies in memory as it is, and comparing takes no time that tells about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRing {
    entries: Vec<([u8; 32], Roles)>,
    certificates: Vec<(SanRule, Roles)>,
}

impl KeyRing {
    /// Reads a key file: a line is `ROLE[,ROLE…] KEY`, `ROLE[,ROLE…] sha256:HEX` or, for client certificates,
    /// `ROLE[,ROLE…] san:DNS:NAME` or `ROLE[,ROLE…] san:URI:NAME`; `#` begins a comment.
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
            ring.read(line)
                .map_err(|problem| format!("line {}: {problem}", index + 1))?;
        }
        if ring.entries.is_empty() && ring.certificates.is_empty() {
            return Err("has no key; a line is `ROLE[,ROLE] KEY`".to_owned());
        }
        Ok(ring)
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let (roles, key) = line
            .split_once(char::is_whitespace)
            .ok_or("must be `ROLE[,ROLE] KEY`")?;
        let roles = Roles::parse(roles)?;
        let key = key.trim();
        if key.contains(char::is_whitespace) {
            return Err("a key must not contain white space".to_owned());
        }
        if let Some(rule) = key.strip_prefix("san:") {
            self.certificates.push((SanRule::parse(rule)?, roles));
        } else if let Some(hex) = key.strip_prefix("sha256:") {
            self.entries.push((from_hex(hex)?, roles));
        } else {
            self.add(key, roles)?;
        }
        Ok(())
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

    /// The roles of a client certificate with these names; `None` where no rule fits one of them.
    #[must_use]
    pub fn roles_of_certificate(&self, names: &[San]) -> Option<Roles> {
        let fitting = self
            .certificates
            .iter()
            .filter(|(rule, _)| names.iter().any(|name| rule.fits(name)));
        fitting
            .map(|(_, roles)| *roles)
            .reduce(|all, more| all.and(more))
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
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

    /// The keys and rules as they are now.
    #[must_use]
    pub fn ring(&self) -> Arc<KeyRing> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
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
            ring.certificates.extend(read.certificates);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }
}

impl Reload for Keys {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file.iter().cloned().collect()
    }

    fn reload(&self) -> Result<(), String> {
        self.load()
    }
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
        assert!(!keys.ring().roles("given-key").unwrap().has(Role::Admin));
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(keys.load().unwrap_err().contains("line 1"));
        assert!(keys.ring().roles("file-key-1").unwrap().has(Role::Admin));
        std::fs::write(&path, "admin file-key-2\n").unwrap();
        keys.load().unwrap();
        assert_eq!(keys.ring().roles("file-key-1"), None);
        assert!(keys.ring().roles("given-key").is_some());
    }

    #[test]
    fn without_keys_nothing_is_asked() {
        assert!(!Keys::new(&[], None).unwrap().required());
        assert!(Keys::new(&["short".to_owned()], None).is_err());
    }

    #[test]
    fn a_certificate_has_what_all_its_rules_allow() {
        let text = "inference san:DNS:*.clients.example\nmetrics san:DNS:grafana.clients.example\n";
        let ring = KeyRing::parse(text).unwrap();
        let dns = |name: &str| San::Dns(name.to_owned());
        let roles = ring.roles_of_certificate(&[dns("x"), dns("grafana.clients.example")]);
        assert!(roles.is_some_and(|roles| roles.has(Role::Metrics) && roles.has(Role::Inference)));
        let roles = ring.roles_of_certificate(&[dns("a.clients.example")]);
        assert_eq!(roles, Some(Roles::of(Role::Inference)));
        assert_eq!(ring.roles_of_certificate(&[dns("clients.example")]), None);
        assert_eq!(ring.roles_of_certificate(&[]), None);
        assert_eq!(ring.roles("san:DNS:*.clients.example"), None);
    }
}
