//! What a client may do.

/// A kind of route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Asking for tokens, embeddings, models.
    Inference,
    /// Rendering and tokenizing without an engine.
    Render,
    /// Reading metrics.
    Metrics,
    /// Control: caches, weights, pause, shutdown.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Inference, Self::Render, Self::Metrics, Self::Admin];

    /// The name in key files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Render => "render",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// One role.
    #[must_use]
    pub fn of(role: Role) -> Self {
        Self(role.bit())
    }

    /// Every role.
    #[must_use]
    pub fn all() -> Self {
        Self(Role::ALL.iter().fold(0, |bits, role| bits | role.bit()))
    }

    /// These roles but one.
    #[must_use]
    pub fn without(self, role: Role) -> Self {
        Self(self.0 & !role.bit())
    }

    /// These roles and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a role is among them.
    #[must_use]
    pub fn has(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// Reads `inference,render`; `all` is every role.
    ///
    /// # Errors
    /// Names the word that is no role, and the roles.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut roles = Self(0);
        for word in text.split(',') {
            let one = if word == "all" {
                Self::all()
            } else {
                let known = Role::ALL.iter().find(|role| role.name() == word);
                Self::of(*known.ok_or_else(|| {
                    let names: Vec<&str> = Role::ALL.iter().map(|role| role.name()).collect();
                    format!("{word:?} is no role; there are {}, all", names.join(", "))
                })?)
            };
            roles = roles.and(one);
        }
        Ok(roles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_sets() {
        let two = Roles::parse("inference,metrics").unwrap();
        assert!(two.has(Role::Inference) && two.has(Role::Metrics));
        assert!(!two.has(Role::Render) && !two.has(Role::Admin));
        assert_eq!(Roles::parse("all").unwrap(), Roles::all());
        assert_eq!(
            Roles::all()
                .without(Role::Admin)
                .and(Roles::of(Role::Admin)),
            Roles::all()
        );
        assert!(Roles::parse("inference,").unwrap_err().contains("\"\""));
    }
}
