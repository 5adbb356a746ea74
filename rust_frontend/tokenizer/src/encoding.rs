//! What encoding a text gives.

/// Token ids, and which characters of the text each stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// One id a token.
    pub ids: Vec<u32>,
    /// `[start, end)` in characters (not bytes) of the text, one a token. Tokens that are parts of one character have the
    /// place of that character each; a token that the tokenizer added has the empty place `(0, 0)`.
    pub offsets: Vec<(usize, usize)>,
}

impl Encoding {
    /// Which tokens stand for a character of one of these spans, given in characters: 1 for those that do, else 0.
    pub fn mask(&self, spans: &[std::ops::Range<usize>]) -> Vec<u8> {
        let inside = |(start, end): (usize, usize)| {
            let first = spans.partition_point(|span| span.end <= start);
            spans.get(first).is_some_and(|span| span.start < end)
        };
        self.offsets
            .iter()
            .map(|place| u8::from(inside(*place)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_the_tokens_that_overlap() {
        let encoding = Encoding {
            ids: vec![9, 1, 2, 3, 4, 5],
            offsets: vec![(0, 0), (0, 2), (2, 4), (4, 5), (4, 5), (5, 9)],
        };
        assert_eq!(encoding.mask(&[3..5, 8..9]), [0, 0, 1, 1, 1, 1]);
        assert_eq!(encoding.mask(&[0..1, 9..9]), [0, 1, 0, 0, 0, 0]);
        assert_eq!(encoding.mask(&[]), [0; 6]);
    }
}
