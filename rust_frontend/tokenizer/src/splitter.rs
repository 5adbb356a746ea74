//! Splitting a text by the pattern of a tokenizer's files.
//!
//! Patterns run as automata, which read each byte about once. What automata cannot do is the lookahead that most patterns
//! end with, `\s+(?!\S)|\s+`: white space without its last character, where something follows. There `\s+` becomes a pattern
//! of its own behind all others, and its last character is given back by hand. Patterns with other lookaround, or with
//! what only a backtracking engine knows, go to one.

use std::ops::Range;

use fancy_regex::Regex;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, PatternID};

/// How most patterns end.
const TAIL: &str = r"\s+(?!\S)|\s+";

/// Most bytes of an automaton's states, a thread.
const MEMORY: usize = 4 << 20;

/// A compiled pattern. Shared between threads, each of which brings a [`Scan`].
#[derive(Debug)]
pub(crate) enum Splitter {
    /// Without lookaround, but for [`TAIL`].
    Automaton {
        dfa: Box<DFA>,
        /// The pattern that stands for [`TAIL`].
        space: Option<PatternID>,
    },
    /// All else.
    Backtracking(Box<Regex>),
}

/// What an automaton has worked out so far: up to [`MEMORY`] bytes, then it begins anew.
#[derive(Debug)]
pub(crate) struct Scan(Option<Cache>);

impl Splitter {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// A pattern that is no regular expression, or that matches nothing at all.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        if let Some(automaton) = automaton(pattern) {
            return Ok(automaton);
        }
        let said = |reason: String| format!("the pattern \"{pattern}\": {reason}");
        let regex = Regex::new(pattern).map_err(|error| said(error.to_string()))?;
        match regex.is_match("") {
            Ok(false) => Ok(Self::Backtracking(Box::new(regex))),
            Ok(true) => Err(said("it matches the empty text".to_owned())),
            Err(error) => Err(said(error.to_string())),
        }
    }

    /// Memory for one thread.
    pub(crate) fn scan(&self) -> Scan {
        Scan(match self {
            Self::Automaton { dfa, .. } => Some(dfa.create_cache()),
            Self::Backtracking(_) => None,
        })
    }

    /// The first match that begins at `at` or behind it.
    ///
    /// # Errors
    /// The engine gives up on the text.
    pub(crate) fn find(
        &self,
        scan: &mut Scan,
        text: &str,
        at: usize,
    ) -> Result<Option<Range<usize>>, String> {
        match (self, &mut scan.0) {
            (Self::Automaton { dfa, space }, Some(cache)) => {
                let mut finder = Finder {
                    dfa,
                    cache,
                    text,
                    space: *space,
                };
                finder.find(at)
            }
            (Self::Automaton { dfa, .. }, none) => {
                *none = Some(dfa.create_cache());
                self.find(scan, text, at)
            }
            (Self::Backtracking(regex), _) => backtrack(regex, text, at),
        }
    }
}

/// Compiles a pattern to an automaton; `None` where it cannot be one.
fn automaton(pattern: &str) -> Option<Splitter> {
    if possessive(pattern) {
        return None;
    }
    let head = pattern.strip_suffix(TAIL);
    let branches = match (head, head.and_then(|head| head.strip_suffix('|'))) {
        (Some(""), _) => vec![r"\s+"],
        // Behind "|" the tail is a branch of the whole, and the head stands by itself if it is a pattern.
        (Some(_), Some(head)) => vec![head, r"\s+"],
        _ => vec![pattern],
    };
    for branch in &branches {
        let hir = syntax::parse(branch).ok()?;
        if hir
            .properties()
            .minimum_len()
            .is_none_or(|least| least == 0)
        {
            return None;
        }
    }
    let space = head.and_then(|_| PatternID::new(branches.len() - 1).ok());
    let dfa = DFA::builder()
        .configure(DFA::config().cache_capacity(MEMORY))
        .thompson(thompson::Config::new().which_captures(WhichCaptures::None))
        .build_many(&branches)
        .ok()?;
    Some(Splitter::Automaton {
        dfa: Box::new(dfa),
        space,
    })
}

/// Whether a pattern has a quantifier that gives nothing back (`a++`): automata would read it as two of the common kind.
fn possessive(pattern: &str) -> bool {
    let mut letters = pattern.chars().peekable();
    let (mut classes, mut quantified) = (0, false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                quantified = false;
                let named = matches!(letters.next(), Some('p' | 'P' | 'x' | 'u' | 'U'));
                if named && letters.peek() == Some(&'{') {
                    letters.by_ref().find(|letter| *letter == '}');
                }
            }
            '[' => (classes, quantified) = (classes + 1, false),
            ']' if classes > 0 => classes -= 1,
            _ if classes > 0 => {}
            '+' if quantified => return true,
            letter => quantified = matches!(letter, '?' | '*' | '+' | '}'),
        }
    }
    false
}

/// An automaton on a text.
struct Finder<'a> {
    dfa: &'a DFA,
    cache: &'a mut Cache,
    text: &'a str,
    space: Option<PatternID>,
}

impl Finder<'_> {
    fn find(&mut self, mut at: usize) -> Result<Option<Range<usize>>, String> {
        if let Some(end) = self.run(at, Anchored::Yes)? {
            return Ok(Some(at..end));
        }
        if self.run(at, Anchored::No)?.is_none() {
            return Ok(None);
        }
        // There is a match further on, whose end alone is known.
        while let Some(letter) = self.text[at..].chars().next() {
            at += letter.len_utf8();
            if let Some(end) = self.run(at, Anchored::Yes)? {
                return Ok(Some(at..end));
            }
        }
        Ok(None)
    }

    /// Where the first match ends that begins at `at`, or anywhere behind it.
    fn run(&mut self, at: usize, anchored: Anchored) -> Result<Option<usize>, String> {
        let input = Input::new(self.text).range(at..).anchored(anchored);
        let found = self
            .dfa
            .try_search_fwd(self.cache, &input)
            .map_err(|error| error.to_string())?;
        Ok(
            found.map(|found| match self.space == Some(found.pattern()) {
                true => self.without_last(at, found.offset()),
                false => found.offset(),
            }),
        )
    }

    /// Where a run of white space ends that leaves its last character to what follows.
    fn without_last(&self, start: usize, end: usize) -> usize {
        let last = self.text[start..end].chars().next_back();
        let last = last.map_or(0, char::len_utf8);
        if end == self.text.len() || start + last == end {
            end
        } else {
            end - last
        }
    }
}

fn backtrack(regex: &Regex, text: &str, mut at: usize) -> Result<Option<Range<usize>>, String> {
    loop {
        let found = regex
            .find_from_pos(text, at)
            .map_err(|error| error.to_string())?;
        match found {
            // Empty matches split nothing.
            Some(found) if found.start() == found.end() => {
                let next = text[found.end()..].chars().next();
                match next {
                    Some(letter) => at = found.end() + letter.len_utf8(),
                    None => return Ok(None),
                }
            }
            found => return Ok(found.map(|found| found.start()..found.end())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    const LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const CASED: &str = concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );
    const GPT2: &str =
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const MARKS: &str = concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
        r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );
    const HAN: &str = "[一-龥぀-ゟ゠-ヿ]+";

    /// Each pattern as an automaton and as the backtracking engine runs it.
    static BOTH: LazyLock<Vec<(&str, Splitter, Regex)>> = LazyLock::new(|| {
        let patterns = [LLAMA, CASED, GPT2, MARKS, HAN, r"\p{N}{1,3}", TAIL];
        let both = patterns.map(|pattern| {
            (
                pattern,
                Splitter::new(pattern).unwrap(),
                Regex::new(pattern).unwrap(),
            )
        });
        both.into()
    });

    fn pieces(splitter: &Splitter, text: &str) -> Vec<Range<usize>> {
        let (mut scan, mut at, mut pieces) = (splitter.scan(), 0, Vec::new());
        while let Some(piece) = splitter.find(&mut scan, text, at).unwrap() {
            at = piece.end;
            pieces.push(piece);
        }
        pieces
    }

    fn equal(text: &str) {
        for (pattern, splitter, regex) in BOTH.iter() {
            assert!(matches!(splitter, Splitter::Automaton { .. }), "{pattern}");
            let wanted: Vec<_> = regex
                .find_iter(text)
                .map(|found| found.unwrap().range())
                .collect();
            assert_eq!(pieces(splitter, text), wanted, "{pattern} {text:?}");
        }
    }

    #[test]
    fn white_space_leaves_its_last_character() {
        for text in [
            "  a",
            " a",
            "   ",
            "a  \n  b",
            "\n\n  \u{3000}\u{a0}x",
            " \t 12  ,",
            "x \r\n\r\n y",
            "'ſ'S 'LL",
        ] {
            equal(text);
        }
    }

    #[test]
    fn every_character_is_split_as_by_the_engine() {
        // Planes beyond have no characters.
        let all: Vec<char> = ('\0'..'\u{32000}').collect();
        for some in all.chunks(4096) {
            let text: String = some
                .iter()
                .flat_map(|letter| ['a', *letter, ' ', *letter])
                .collect();
            equal(&text);
        }
    }

    #[test]
    fn other_patterns_go_to_the_engine() {
        for pattern in [
            r"a(?=b)|a|\s+(?!\S)|\s+",
            r"\p{L}++",
            r"\++\d{1,3}+",
            r"(\s+(?!\S)|\s+)",
        ] {
            let splitter = Splitter::new(pattern).unwrap();
            assert!(matches!(splitter, Splitter::Backtracking(_)), "{pattern}");
        }
        for pattern in ["(", "a*", "x|", r"|\s+(?!\S)|\s+"] {
            assert!(Splitter::new(pattern).is_err(), "{pattern}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_split_as_by_the_engine(text in "(\\PC|[ \\n\\t\\r]{1,4}|[a-zA-Z0-9'.,/ ]{1,8}|[一龥あアé\u{301}ſ²]){0,30}") {
            equal(&text);
        }
    }
}
