//! Stop strings in a stream.

/// Finds the first of a few strings that ends in a growing text, and holds back only what may become one.
///
/// Each string is followed by the automaton of Knuth, Morris and Pratt: cost is linear in the text, whatever it says.
#[derive(Debug)]
pub(crate) struct StopScanner {
    patterns: Vec<Pattern>,
    /// Text that is not given out: it may be the beginning of a stop string.
    held: String,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    /// For each length of a matched prefix, the longest proper prefix that is also its suffix.
    borders: Vec<usize>,
    matched: usize,
}

impl StopScanner {
    /// Looks for these strings, none of which is empty.
    pub(crate) fn new(stop: &[String]) -> Self {
        Self {
            patterns: stop.iter().map(|text| Pattern::new(text)).collect(),
            held: String::new(),
        }
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_idle(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Takes new text and appends to `out` what is certain. Returns the stop string that ended: the one that ended first,
    /// the longest of those that ended together. Its text, and what follows, is not given out.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> Option<String> {
        if self.patterns.is_empty() {
            out.push_str(text);
            return None;
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            let mut found: Option<&str> = None;
            for pattern in &mut self.patterns {
                if pattern.step(byte)
                    && found.is_none_or(|longest| longest.len() < pattern.text.len())
                {
                    found = Some(&pattern.text);
                }
            }
            if let Some(stop) = found.map(str::to_owned) {
                out.push_str(&self.held[..before + at + 1 - stop.len()]);
                self.held.clear();
                return Some(stop);
            }
        }
        let keep = self
            .patterns
            .iter()
            .map(|pattern| pattern.matched)
            .max()
            .unwrap_or(0);
        out.extend(self.held.drain(..self.held.len() - keep));
        None
    }

    /// Gives out what was held back: the text has ended, or something else than text comes.
    pub(crate) fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        for pattern in &mut self.patterns {
            pattern.matched = 0;
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for length in 1..bytes.len() {
            while border > 0 && bytes[length] != bytes[border] {
                border = borders[border];
            }
            if bytes[length] == bytes[border] {
                border += 1;
            }
            borders[length + 1] = border;
        }
        Self {
            text: text.to_owned(),
            borders,
            matched: 0,
        }
    }

    /// Takes a byte; true where the string ends with it.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes.get(self.matched) != Some(&byte) {
            self.matched = self.borders[self.matched];
        }
        if bytes.get(self.matched) == Some(&byte) {
            self.matched += 1;
        }
        self.matched == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::StopScanner;
    use proptest::prelude::*;

    /// The whole text at once, by brute force.
    fn expected(text: &str, stops: &[String]) -> (String, Option<String>) {
        for end in (1..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let ending = stops
                .iter()
                .filter(|stop| text[..end].ends_with(stop.as_str()))
                .max_by_key(|stop| stop.len());
            if let Some(stop) = ending {
                return (text[..end - stop.len()].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    #[test]
    fn holds_back_only_what_may_become_a_stop() {
        let mut scanner = StopScanner::new(&["<|user|>".to_owned(), "\n\nQ:".to_owned()]);
        let mut out = String::new();
        assert_eq!(scanner.push("hello\n", &mut out), None);
        assert_eq!(out, "hello");
        assert_eq!(scanner.push("\nA", &mut out), None);
        assert_eq!(out, "hello\n\nA");
        assert_eq!(scanner.push(" <|us", &mut out), None);
        assert_eq!(
            scanner.push("er|> more", &mut out),
            Some("<|user|>".to_owned())
        );
        assert_eq!(out, "hello\n\nA ");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(
            text in "[abé]{0,30}",
            stops in prop::collection::vec("[abé]{1,5}", 0..4),
            cuts in prop::collection::vec(1usize..5, 1..6),
        ) {
            let mut scanner = StopScanner::new(&stops);
            let longest = stops.iter().map(String::len).max().unwrap_or(1);
            let (mut out, mut seen, mut found) = (String::new(), 0, None);
            let letters: Vec<char> = text.chars().collect();
            let mut rest = letters.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() || found.is_some() {
                    break;
                }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                let piece: String = head.iter().collect();
                seen += piece.len();
                found = scanner.push(&piece, &mut out);
                prop_assert!(found.is_some() || seen - out.len() < longest);
                rest = tail;
            }
            if found.is_none() {
                scanner.finish(&mut out);
            }
            prop_assert_eq!((out, found), expected(&text, &stops));
        }
    }
}
