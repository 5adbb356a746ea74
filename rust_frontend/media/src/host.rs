//! Hosts that may be named.

/// A host that media may come from: `images.example`, `*.example`, `images.example:8443`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// In lower case, without a dot at its end.
    name: String,
    /// Whether any one label may stand in front.
    below: bool,
    /// `None`: 80 and 443.
    port: Option<u16>,
}

impl HostRule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} must be a host such as images.example, *.example or images.example:8443"
            )
        };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let (below, name) = match host.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, host),
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || !name.bytes().all(fine) {
            return Err(wrong());
        }
        Ok(Self { name, below, port })
    }

    /// Whether a host, in lower case and without a dot at its end, and a port are meant.
    pub(crate) fn fits(&self, host: &str, port: u16) -> bool {
        let named = if self.below {
            host.strip_suffix(&self.name)
                .and_then(|label| label.strip_suffix('.'))
                .is_some_and(|label| !label.is_empty() && !label.contains('.'))
        } else {
            host == self.name
        };
        named && self.port.map_or(usual(port), |wanted| wanted == port)
    }
}

/// The ports of the web.
pub(crate) fn usual(port: u16) -> bool {
    port == 80 || port == 443
}

/// Names that mean the machine or the network that the server runs in, whatever they resolve to.
pub(crate) fn is_internal(host: &str) -> bool {
    const ENDS: [&str; 8] = [
        "localhost",
        "local",
        "internal",
        "svc",
        "cluster.local",
        "localdomain",
        "home.arpa",
        "lan",
    ];
    let within = |end: &str| {
        host.strip_suffix(end)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    // A name without a dot is looked up in the search domains of the machine.
    !host.contains('.') || ENDS.into_iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_fit_what_they_name() {
        let cases = [
            ("good.test", "good.test", 443, true),
            ("good.test", "good.test", 80, true),
            ("good.test", "good.test", 8080, false),
            ("good.test:8080", "good.test", 8080, true),
            ("good.test:8080", "good.test", 443, false),
            ("Good.Test.", "good.test", 443, true),
            ("good.test", "good.test.evil.test", 443, false),
            ("good.test", "notgood.test", 443, false),
            ("*.test", "good.test", 443, true),
            ("*.test", "a.good.test", 443, false),
            ("*.test", "test", 443, false),
        ];
        for (rule, host, port, fits) in cases {
            assert_eq!(
                HostRule::parse(rule).unwrap().fits(host, port),
                fits,
                "{rule} {host}:{port}"
            );
        }
        for text in ["", "*", "*.", "a b", "http://x", "x:99999", "x/y"] {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_the_inside_are_known() {
        let inside = "localhost a.localhost metadata.google.internal kubernetes.default.svc redis printer.local a.cluster.local";
        assert!(inside.split(' ').all(is_internal));
        assert!(
            !"example.com svc.example localhost.example"
                .split(' ')
                .any(is_internal)
        );
    }
}
