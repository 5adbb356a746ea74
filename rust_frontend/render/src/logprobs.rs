//! Log probabilities of tokens, with the tokens' texts.

use octavo_api::{ChatLogprob, CompletionLogprobs, LEAST, PromptLogprobs, TopLogprob};
use octavo_tokenizer::{IncrementalDecoder, Tokenizer};
use octavo_wire::frontend::Logprobs;
use serde_json::{Map, Value, json};

use crate::prepared::TokenNames;

/// One token of an output.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The token itself.
    pub token: TopLogprob,
    /// The others asked for: the best first, or in the order of the request.
    pub top: Vec<TopLogprob>,
    /// The ids of all these.
    pub ids: Vec<i32>,
    /// The token's place in the whole vocabulary, from 1.
    pub rank: i32,
    /// Where its text begins, in characters from the beginning of the output.
    pub offset: usize,
}

/// Follows an output to give its tokens texts and places.
#[derive(Debug)]
pub struct LogprobText {
    decoder: IncrementalDecoder,
    names: TokenNames,
    characters: usize,
}

impl LogprobText {
    pub(crate) fn new(decoder: IncrementalDecoder, names: TokenNames) -> Self {
        Self {
            decoder,
            names,
            characters: 0,
        }
    }

    /// Moves all places that follow: so many characters stand before the output.
    pub fn begin_at(&mut self, characters: usize) {
        self.characters = characters;
    }

    /// Takes the next tokens of the output. What `logprobs` does not cover is left out.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer,
        ids: &[i32],
        logprobs: &Logprobs,
    ) -> Vec<TokenLogprobs> {
        let ranks = logprobs.ranks.iter().copied();
        ids.iter()
            .zip(rows(logprobs).zip(ranks))
            .map(|(&id, (row, rank))| {
                let offset = self.characters;
                let mut text = String::new();
                self.decoder.push(&[id.cast_unsigned()], &mut text);
                self.characters += text.chars().count();
                let (ids, values): (Vec<i32>, Vec<f32>) = row.unzip();
                let pairs = ids.iter().zip(values);
                let names = self.names;
                let mut entries = pairs.map(|(&id, value)| entry(tokenizer, id, value, names));
                let token = entries.next();
                let token = token.unwrap_or_else(|| entry(tokenizer, id, 0.0, names));
                TokenLogprobs {
                    token,
                    top: entries.collect(),
                    ids,
                    rank,
                    offset,
                }
            })
            .collect()
    }
}

impl From<TokenLogprobs> for ChatLogprob {
    fn from(from: TokenLogprobs) -> Self {
        Self {
            token: from.token.token,
            logprob: from.token.logprob,
            bytes: from.token.bytes,
            top_logprobs: from.top,
        }
    }
}

/// Log probabilities of a completion's tokens in the shape of that route.
pub fn completion_logprobs(tokens: &[TokenLogprobs]) -> CompletionLogprobs {
    let mut lists = CompletionLogprobs::default();
    for token in tokens {
        lists.text_offset.push(token.offset);
        lists.token_logprobs.push(Some(token.token.logprob));
        lists.tokens.push(token.token.token.clone());
        lists
            .top_logprobs
            .push(Some(by_text(&token.token, &token.top)));
    }
    lists
}

/// The token and its alternatives by their texts. Of two with one text (bytes that are no characters) the better stays.
fn by_text(token: &TopLogprob, top: &[TopLogprob]) -> Map<String, Value> {
    let mut map = Map::new();
    for entry in std::iter::once(token).chain(top) {
        let known = map.get(&entry.token).and_then(Value::as_f64);
        if known.is_none_or(|known| known < entry.logprob) {
            map.insert(entry.token.clone(), json!(entry.logprob));
        }
    }
    map
}

/// A prompt's log probabilities in vLLM's shape.
pub fn prompt_logprobs(tokenizer: &Tokenizer, logprobs: &Logprobs) -> PromptLogprobs {
    let ranks = logprobs.ranks.iter().copied();
    let tokens = rows(logprobs).zip(ranks).map(|(row, rank)| {
        let mut map = Map::new();
        for (place, (id, value)) in row.enumerate() {
            let rank = if place == 0 {
                i64::from(rank)
            } else {
                place as i64
            };
            let entry = entry(tokenizer, id, value, TokenNames::Texts);
            map.entry(id.to_string()).or_insert_with(
                || json!({"logprob": entry.logprob, "rank": rank, "decoded_token": entry.token}),
            );
        }
        Some(map)
    });
    std::iter::once(None).chain(tokens).collect()
}

/// A prompt that stands before its output, as a completion's lists: the first token has no log probability.
/// `logprobs` is `None` where a prompt of one token has none at all.
pub(crate) fn echoed(
    tokenizer: &Tokenizer,
    text: &str,
    ids: &[i32],
    logprobs: Option<&Logprobs>,
    names: TokenNames,
) -> CompletionLogprobs {
    let offsets = offsets(tokenizer, text, ids);
    let mut rows = logprobs.map(rows);
    let mut lists = CompletionLogprobs::default();
    for (place, (&id, offset)) in ids.iter().zip(offsets).enumerate() {
        let row = (place > 0).then(|| rows.as_mut()?.next()).flatten();
        let mut entries = row
            .into_iter()
            .flatten()
            .map(|(id, value)| entry(tokenizer, id, value, names));
        let token = entries.next();
        lists.text_offset.push(offset);
        lists
            .token_logprobs
            .push(token.as_ref().map(|token| token.logprob));
        lists.tokens.push(entry(tokenizer, id, 0.0, names).token);
        lists
            .top_logprobs
            .push(token.map(|token| by_text(&token, &entries.collect::<Vec<_>>())));
    }
    lists
}

/// Where each token of a text begins, in characters. Special tokens may stand in the text or have been added to it.
fn offsets(tokenizer: &Tokenizer, text: &str, ids: &[i32]) -> Vec<usize> {
    let mut decoder = tokenizer.decoder(&[]);
    let (mut at, mut characters) = (0, 0);
    ids.iter()
        .map(|id| {
            let begin = characters;
            let id = id.cast_unsigned();
            let mut piece = String::new();
            decoder.push(&[id], &mut piece);
            if piece.is_empty() && decoder.pending() == 0 {
                let bytes = tokenizer.token_bytes(id).unwrap_or_default();
                piece = String::from_utf8_lossy(bytes).into_owned();
                if !text.get(at..).is_some_and(|rest| rest.starts_with(&piece)) {
                    piece.clear();
                }
            }
            at += piece.len();
            characters += piece.chars().count();
            begin
        })
        .collect()
}

/// One row for each token: ids with values.
fn rows(logprobs: &Logprobs) -> impl Iterator<Item = impl Iterator<Item = (i32, f32)>> {
    let width = (logprobs.width as usize).max(1);
    let ids = logprobs.ids.chunks_exact(width);
    let values = logprobs.values.0.chunks_exact(width);
    ids.zip(values)
        .map(|(ids, values)| ids.iter().copied().zip(values.iter().copied()))
}

fn entry(tokenizer: &Tokenizer, id: i32, value: f32, names: TokenNames) -> TopLogprob {
    let bytes = tokenizer
        .token_bytes(id.cast_unsigned())
        .unwrap_or_default();
    TopLogprob {
        token: match names {
            TokenNames::Texts => String::from_utf8_lossy(bytes).into_owned(),
            TokenNames::Ids => format!("token_id:{id}"),
        },
        logprob: f64::from(value).max(LEAST),
        bytes: bytes.to_vec(),
    }
}
