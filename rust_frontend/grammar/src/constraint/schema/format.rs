//! Formats of strings as patterns, written after the RFCs that JSON Schema names.

use super::draft::Draft;

/// What a format asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    /// Nothing: the draft does not define it, so it is an annotation.
    Annotation,
    /// The whole string matches this.
    Pattern(String),
    /// Something that no pattern here says.
    Unsupported,
}

/// RFC 3339 `full-date`, with the days of each month and leap years.
const DATE: &str = concat!(
    "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(?:",
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)",
);
/// RFC 3339 `full-time`, without leap seconds.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const IPV4: &str = "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const UUID: &str = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
const JSON_POINTER: &str = "(?:/(?:[^/~]|~[01])*)*";
/// RFC 3986 `pchar`.
const PCHAR: &str = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";

/// Most characters of a host name, RFC 1035.
pub(crate) const MAX_HOSTNAME: u64 = 253;

/// What `name` asks for in `draft`.
pub(crate) fn lookup(name: &str, draft: Draft) -> Format {
    let pattern = match name {
        "date-time" => format!("{DATE}[Tt]{TIME}"),
        "date" if draft >= Draft::D7 => DATE.to_owned(),
        "time" if draft >= Draft::D7 => TIME.to_owned(),
        "duration" if draft >= Draft::D2019 => duration(),
        "email" => {
            let atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
            format!("{atom}(?:\\.{atom})*@{LABEL}(?:\\.{LABEL})*")
        }
        "hostname" => format!("{LABEL}(?:\\.{LABEL})*"),
        "ipv4" => IPV4.to_owned(),
        "ipv6" => ipv6(),
        "uuid" if draft >= Draft::D2019 => UUID.to_owned(),
        "uri" => uri(),
        "uri-reference" if draft >= Draft::D6 => format!("(?:{}|{})", uri(), relative()),
        "json-pointer" if draft >= Draft::D6 => JSON_POINTER.to_owned(),
        "idn-email" | "regex" => return Format::Unsupported,
        "uri-template" if draft >= Draft::D6 => return Format::Unsupported,
        "idn-hostname" | "iri" | "iri-reference" | "relative-json-pointer"
            if draft >= Draft::D7 =>
        {
            return Format::Unsupported;
        }
        _ => return Format::Annotation,
    };
    Format::Pattern(pattern)
}

/// RFC 3339, appendix A.
fn duration() -> String {
    let minute = "[0-9]+M(?:[0-9]+S)?";
    let hour = format!("[0-9]+H(?:{minute})?");
    let time = format!("T(?:{hour}|{minute}|[0-9]+S)");
    let month = "[0-9]+M(?:[0-9]+D)?";
    let year = format!("[0-9]+Y(?:{month})?");
    format!("P(?:(?:{year}|{month}|[0-9]+D)(?:{time})?|{time}|[0-9]+W)")
}

/// RFC 4291, 2.2: eight groups, or fewer around one `::`; the last two may be an IPv4 address.
fn ipv6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let tail = format!("(?:{group}:{group}|{IPV4})");
    let mut forms = vec![format!("(?:{group}:){{6}}{tail}")];
    // `before` groups, then `::`, then at most 7 - before more.
    for before in 0..=7 {
        let left = match before {
            0 => String::new(),
            1 => group.to_owned(),
            more => format!("{group}(?::{group}){{{}}}", more - 1),
        };
        let most = 7 - before;
        if most == 0 {
            forms.push(format!("{left}::"));
            continue;
        }
        forms.push(format!(
            "{left}::(?:{group}(?::{group}){{0,{}}})?",
            most - 1
        ));
        match most {
            0 | 1 => {}
            2 => forms.push(format!("{left}::{IPV4}")),
            more => forms.push(format!("{left}::(?:{group}:){{0,{}}}{IPV4}", more - 2)),
        }
    }
    format!("(?:{})", forms.join("|"))
}

fn authority() -> String {
    let userinfo = "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*";
    let name = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*";
    format!("(?:{userinfo}@)?(?:\\[{}\\]|{name})(?::[0-9]*)?", ipv6())
}

/// Query and fragment.
fn rest() -> String {
    let part = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*";
    format!("(?:\\?{part})?(?:#{part})?")
}

/// RFC 3986 `URI`.
fn uri() -> String {
    let hier = format!(
        "(?://{}(?:/{PCHAR}*)*|/(?:{PCHAR}+(?:/{PCHAR}*)*)?|{PCHAR}+(?:/{PCHAR}*)*|)",
        authority()
    );
    format!("[A-Za-z][A-Za-z0-9+.-]*:{hier}{}", rest())
}

/// RFC 3986 `relative-ref`.
fn relative() -> String {
    let segment = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+";
    let path = format!(
        "(?://{}(?:/{PCHAR}*)*|/(?:{PCHAR}+(?:/{PCHAR}*)*)?|{segment}(?:/{PCHAR}*)*|)",
        authority()
    );
    format!("{path}{}", rest())
}
