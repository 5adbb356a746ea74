//! Decoding token by token.

use std::sync::Arc;

use crate::pieces::Pieces;
use crate::plan::Plan;

/// Most bytes of an unfinished character: a UTF-8 character has four.
const MAX_PENDING: usize = 3;

/// Text of a growing list of ids, special tokens left out.
///
/// The joined pieces and what [`Self::finish`] adds equal a decode of all ids at once. A character is given out with
/// the token that completes it, so that at most three bytes are held back; bytes that are no text become U+FFFD as soon
/// as that is certain. Cost is linear in the bytes of the new tokens.
///
/// One rule differs from the `tokenizers` crate: of a run of byte tokens (`<0xE5>`) that is not valid UTF-8 as a whole,
/// the characters that are complete are kept, where that crate turns each byte of the run into U+FFFD. It could not give
/// out any of them before the run ends.
#[derive(Debug, Clone)]
pub struct IncrementalDecoder {
    pieces: Arc<Pieces>,
    tail: Tail,
    /// Whether a visible token came.
    started: bool,
    /// Whether special tokens are part of the text.
    special: bool,
}

/// The end of the text so far: what later bytes may change.
#[derive(Debug, Clone)]
struct Tail {
    /// Bytes of an unfinished character, of which `held` count.
    pending: [u8; MAX_PENDING],
    held: usize,
    /// The letter that may still be stripped from the front, and how often.
    strip: Option<(char, usize)>,
}

impl IncrementalDecoder {
    /// Starts after the ids of `context`, whose own text is not given out; a character that it left unfinished is
    /// given out whole. Without a context the text begins here, which matters to decoders that drop a leading space.
    pub(crate) fn new(pieces: Arc<Pieces>, context: &[u32]) -> Self {
        let strip = match pieces.plan() {
            Plan::Chain(chain) => chain.strip,
            _ => None,
        };
        let tail = Tail {
            pending: [0; MAX_PENDING],
            held: 0,
            strip,
        };
        let mut decoder = Self {
            pieces,
            tail,
            started: false,
            special: false,
        };
        decoder.push(context, &mut String::new());
        decoder
    }

    /// Makes special tokens that come from now on part of the text.
    #[must_use]
    pub fn with_special(mut self) -> Self {
        self.special = true;
        self
    }

    /// Appends the text that `ids` make certain.
    pub fn push(&mut self, ids: &[u32], out: &mut String) {
        let (pieces, tail) = (&*self.pieces, &mut self.tail);
        for &id in ids {
            let piece = if self.special {
                pieces.any(id)
            } else {
                pieces.visible(id)
            };
            let Some(piece) = piece else {
                continue;
            };
            let first = !self.started;
            self.started = true;
            match pieces.plan() {
                Plan::ByteLevel => tail.bytes(piece.bytes, |_| 1, out),
                Plan::Chain(_) if piece.byte => tail.bytes(piece.bytes, |wrong| wrong, out),
                Plan::Chain(_) => {
                    tail.flush(tail.held, out);
                    tail.text(piece.bytes, out);
                }
                Plan::Metaspace { .. } | Plan::WordPiece { .. } => tail.text(
                    if first {
                        pieces.first(id, piece)
                    } else {
                        piece.bytes
                    },
                    out,
                ),
                Plan::Words => {
                    if !first {
                        out.push(' ');
                    }
                    tail.text(piece.bytes, out);
                }
            }
        }
    }

    /// Appends what was held back: an unfinished character becomes U+FFFD. More may be pushed afterwards, as after a new start.
    pub fn finish(&mut self, out: &mut String) {
        let marks = if matches!(self.pieces.plan(), Plan::ByteLevel) {
            1
        } else {
            self.tail.held
        };
        self.tail.flush(marks, out);
    }

    /// Bytes held back.
    pub fn pending(&self) -> usize {
        self.tail.held
    }
}

impl Tail {
    /// Appends whole text.
    fn text(&mut self, bytes: &[u8], out: &mut String) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.emit(text, out),
            Err(_) => self.emit(&String::from_utf8_lossy(bytes), out),
        }
    }

    /// Appends bytes of which characters may begin or end in other tokens. `marks` says how many U+FFFD stand for so
    /// many wrong bytes.
    fn bytes(&mut self, bytes: &[u8], marks: fn(usize) -> usize, out: &mut String) {
        if self.held == 0
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            return self.emit(text, out); // nearly all tokens
        }
        let mut rest = bytes;
        // What was held back takes bytes until it is a character, or certainly none.
        while self.held > 0
            && let Some((next, tail)) = rest.split_first()
        {
            let mut joined = [0; MAX_PENDING + 1];
            joined[..self.held].copy_from_slice(&self.pending[..self.held]);
            joined[self.held] = *next;
            let joined = &joined[..=self.held];
            if let Ok(character) = std::str::from_utf8(joined) {
                self.held = 0;
                self.emit(character, out);
            } else if unfinished(joined) {
                self.hold(joined);
            } else {
                // The byte may begin another character.
                self.flush(marks(self.held), out);
                continue;
            }
            rest = tail;
        }
        while let Some(chunk) = rest.utf8_chunks().next() {
            self.emit(chunk.valid(), out);
            let wrong = chunk.invalid();
            rest = &rest[chunk.valid().len() + wrong.len()..];
            if rest.is_empty() && unfinished(wrong) {
                self.hold(wrong);
            } else if !wrong.is_empty() {
                self.mark(marks(wrong.len()), out);
            }
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.pending[..bytes.len()].copy_from_slice(bytes);
        self.held = bytes.len();
    }

    /// Gives up on the unfinished character.
    fn flush(&mut self, marks: usize, out: &mut String) {
        if self.held > 0 {
            self.held = 0;
            self.mark(marks, out);
        }
    }

    fn mark(&mut self, count: usize, out: &mut String) {
        for _ in 0..count {
            self.emit("\u{fffd}", out);
        }
    }

    /// Appends text, less what is stripped from the front of it all.
    fn emit(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        if let Some((letter, left)) = &mut self.strip {
            while *left > 0
                && let Some(shorter) = rest.strip_prefix(*letter)
            {
                rest = shorter;
                *left -= 1;
            }
            if *left == 0 || !rest.is_empty() {
                self.strip = None;
            }
        }
        out.push_str(rest);
    }
}

/// Whether more bytes could make these a character.
fn unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}
