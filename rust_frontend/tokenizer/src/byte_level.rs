//! Encoding by a byte-level tokenizer.json, as GPT-2 began them: the common kind. The same ids as the `tokenizers` crate
//! gives, at a fraction of its cost.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use tokenizers::AddedToken;

use crate::added::{AddedTokens, Part};
use crate::alphabet;
use crate::kept::Kept;
use crate::merges::{Joining, MISSING, Merges};
use crate::model_file::{Model, ModelFile};
use crate::recent::{Key, Recent};
use crate::splitter::Scan;
use crate::steps::Steps;
use crate::vocabulary::Vocabulary;

/// Words that are looked up together.
const BATCH: usize = 64;

/// A word of which it is not known whether joining its bytes gives it.
const UNKNOWN: u8 = 0;
/// A word that its bytes join to.
const ITSELF: u8 = 1;
/// A word that its bytes do not join to.
const OTHERS: u8 = 2;

/// A byte-level tokenizer without its added tokens.
pub(crate) struct Level {
    composes: bool,
    steps: Steps,
    vocabulary: Vocabulary,
    merges: Merges,
    /// By the places of the vocabulary; found out when a word is first met.
    whole: Vec<AtomicU8>,
}

/// A byte-level tokenizer. Shared between threads.
pub(crate) struct ByteLevel {
    level: Level,
    added: AddedTokens,
    scratch: Kept<Scratch>,
}

/// Memory of one thread.
struct Scratch {
    scans: Vec<Option<Scan>>,
    words: Words,
}

/// What encoding words needs of memory.
struct Words {
    recent: Recent,
    joining: Joining,
}

impl Level {
    /// Reads a tokenizer.json. `None` for one that is of another kind, or that does what nothing here does.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let file: ModelFile<'_> = serde_json::from_slice(bytes).ok()?;
        let model = &file.model;
        let affix = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if model.kind != "BPE"
            || model.dropout.is_some_and(|dropout| dropout != 0.0)
            || affix(&model.continuing_subword_prefix)
            || affix(&model.end_of_word_suffix)
        {
            return None;
        }
        let composes = composes(&file.normalizer)?;
        let steps = Steps::read(&file.pre_tokenizer)?;
        let (vocabulary, merges) = tables(model)?;
        let first = if model.ignore_merges { ITSELF } else { UNKNOWN };
        let whole = (0..vocabulary.places()).map(|_| AtomicU8::new(first));
        Some(Self {
            composes,
            steps,
            whole: whole.collect(),
            vocabulary,
            merges,
        })
    }

    /// Appends the ids of words. Reading the tables takes most of the time of new words, so that all reads are begun first.
    fn batch(&self, batch: &[&str], words: &mut Words, ids: &mut Vec<u32>) {
        let mut places = [0; BATCH];
        let mut new = 0;
        for word in batch {
            if !Key::of(word.as_bytes()).is_some_and(|key| words.recent.has(key)) {
                places[new] = self.vocabulary.approach(word.as_bytes());
                new += 1;
            }
        }
        for place in &places[..new] {
            self.vocabulary.approach_sequence(*place);
        }
        for word in batch {
            self.word(word.as_bytes(), words, ids);
        }
    }

    /// Appends the ids of a word.
    #[inline]
    fn word(&self, word: &[u8], words: &mut Words, ids: &mut Vec<u32>) {
        let Some(key) = Key::of(word) else {
            return self.encode(word, &mut words.joining, ids);
        };
        if !words.recent.get(key, ids) {
            let before = ids.len();
            self.encode(word, &mut words.joining, ids);
            words.recent.put(key, &ids[before..]);
        }
    }

    /// Appends the ids of a word by the tables.
    fn encode(&self, word: &[u8], joining: &mut Joining, ids: &mut Vec<u32>) {
        let Some(place) = self.vocabulary.place(word) else {
            return self.merges.encode(word, joining, ids);
        };
        let id = self.vocabulary.id(place);
        match self.whole[place].load(Ordering::Relaxed) {
            ITSELF => ids.push(id),
            OTHERS => self.merges.encode(word, joining, ids),
            _ => {
                let before = ids.len();
                self.merges.encode(word, joining, ids);
                let found = if ids[before..] == [id] {
                    ITSELF
                } else {
                    OTHERS
                };
                self.whole[place].store(found, Ordering::Relaxed);
            }
        }
    }
}

impl ByteLevel {
    /// Completes a tokenizer with its added tokens. `None` where one is of a kind that is not known here.
    pub(crate) fn new<'a>(
        level: Level,
        added: impl Iterator<Item = (u32, &'a AddedToken)>,
    ) -> Option<Self> {
        Some(Self {
            added: AddedTokens::new(added, level.composes)?,
            level,
            scratch: Kept::new(),
        })
    }

    /// Encodes a text. Without `specials`, special tokens that stand in it are text like any other.
    ///
    /// # Errors
    /// A pattern that gives up on the text.
    pub(crate) fn encode(&self, text: &str, specials: bool) -> Result<Vec<u32>, String> {
        let level = &self.level;
        let mut scratch = self.scratch.take(|| Scratch {
            scans: level.steps.scans(),
            words: Words {
                recent: Recent::new(),
                joining: Joining::default(),
            },
        });
        let Scratch { scans, words } = &mut scratch;
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        self.added.cut(text, specials, &mut |part| match part {
            Part::Token(id) => {
                ids.push(id);
                Ok(())
            }
            Part::Text(text) => {
                let (mut batch, mut count) = ([""; BATCH], 0);
                let walked = level.steps.words(scans, text, &mut |word| {
                    batch[count] = word;
                    count += 1;
                    if count == BATCH {
                        level.batch(&batch, words, &mut ids);
                        count = 0;
                    }
                });
                level.batch(&batch[..count], words, &mut ids);
                walked
            }
        })?;
        self.scratch.put(scratch);
        Ok(ids)
    }
}

impl std::fmt::Debug for ByteLevel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ByteLevel")
            .field("vocabulary", &self.level.vocabulary)
            .finish_non_exhaustive()
    }
}

/// Whether a normalizer composes characters; `None` for one that does anything else.
fn composes(normalizer: &Value) -> Option<bool> {
    match normalizer.get("type").and_then(Value::as_str) {
        None => normalizer.is_null().then_some(false),
        Some("NFC") => Some(true),
        Some("Sequence") => match normalizer.get("normalizers")?.as_array()?.as_slice() {
            [] => Some(false),
            [one] => composes(one),
            _ => None,
        },
        Some(_) => None,
    }
}

/// The vocabulary and the rules of a model; `None` where something stands for bytes that have no token, or a rule names a
/// token that is none.
fn tables(model: &Model<'_>) -> Option<(Vocabulary, Merges)> {
    let mut bytes = Vec::with_capacity(8 * model.vocab.0.len());
    let mut places = Vec::with_capacity(model.vocab.0.len());
    for (token, id) in &model.vocab.0 {
        let start = bytes.len();
        // Words have no characters outside the alphabet, so that such tokens never meet one.
        alphabet::append(&token.0, &mut bytes);
        places.push((start..bytes.len(), *id));
    }
    let tokens = places
        .iter()
        .map(|(place, id)| (&bytes[place.clone()], *id));
    let vocabulary = Vocabulary::new(tokens);
    let mut single = [MISSING; 256];
    for (byte, id) in (0..=u8::MAX).zip(&mut single) {
        *id = vocabulary.get(&[byte]).unwrap_or(MISSING);
    }
    if single.contains(&MISSING) && (model.unk_token.is_some() || model.byte_fallback) {
        return None;
    }
    let mut rules = Vec::with_capacity(model.merges.len());
    let mut both = Vec::new();
    for (left, right) in model.merges.iter().filter_map(|merge| merge.0.as_ref()) {
        both.clear();
        let rank = u32::try_from(rules.len()).ok()?;
        let known = alphabet::append(&left.0, &mut both);
        let middle = both.len();
        if !known || !alphabet::append(&right.0, &mut both) {
            return None;
        }
        let (left, right) = (
            vocabulary.get(&both[..middle])?,
            vocabulary.get(&both[middle..])?,
        );
        rules.push((left, right, rank, vocabulary.get(&both)?));
    }
    Some((vocabulary, Merges::new(rules.into_iter(), single)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use serde_json::json;

    const LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const MARKS: &str = r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const WORDS: [&str; 16] = [
        "the", " the", "hello", " hello", "'s", "é", "世界", "  ", "    ", "\n\n", "12", "123",
        "==", "e\u{301}", "ing", "가각",
    ];

    /// The token of bytes.
    fn spelled(bytes: &[u8]) -> String {
        let letter = |byte: &u8| alphabet::letters().find(|(_, own)| own == byte);
        bytes.iter().map(|byte| letter(byte).unwrap().0).collect()
    }

    /// Bytes that no word needs, some of them between others that join.
    const RARE: [u8; 6] = [b'\t', b'7', b'z', 0xC2, 0xE2, 0xF0];

    /// A vocabulary of all bytes and the beginnings of some words. `rest`: the normalizer; `ignore` the rules where a word
    /// is a token; `lack` the rare bytes.
    fn file(pre_tokenizer: &Value, rest: &Value) -> Value {
        let mut vocab = serde_json::Map::new();
        for byte in 0..=u8::MAX {
            if rest["lack"] != true || !RARE.contains(&byte) {
                vocab.insert(spelled(&[byte]), json!(byte));
            }
        }
        let mut merges = Vec::new();
        for word in WORDS.map(str::as_bytes) {
            for end in 2..=word.len() {
                let (left, right) = (spelled(&word[..end - 1]), spelled(&word[end - 1..end]));
                let (id, both) = (vocab.len() + RARE.len(), format!("{left}{right}"));
                if !vocab.contains_key(&both) {
                    vocab.insert(both, json!(id));
                    merges.push(json!([left, right]));
                }
            }
        }
        // A token that no rule leads to.
        let unreachable = vocab.len() + RARE.len();
        vocab.insert(spelled(b"lo"), json!(unreachable));
        let added = |id: usize, content: &str, left: bool, right: bool, normalized: bool| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": left, "rstrip": right,
                   "normalized": normalized, "special": !normalized})
        };
        let added = [
            added(2000, "<s>", false, false, false),
            added(2001, "<l>", true, false, false),
            added(2002, "<r>", false, true, false),
            added(2003, "é!", false, false, true),
        ];
        let mut file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "pre_tokenizer": pre_tokenizer, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
            "added_tokens": added,
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": rest["ignore"] == true, "unk_token": null},
        });
        file["normalizer"] = rest["normalizer"].clone();
        file
    }

    fn level(pattern: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": pattern})
    }

    fn split(pattern: &str, behavior: &str, invert: bool) -> Value {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert})
    }

    fn sequence(steps: &[Value]) -> Value {
        json!({"type": "Sequence", "pretokenizers": steps})
    }

    fn both(file: &Value) -> (ByteLevel, tokenizers::Tokenizer) {
        let bytes = serde_json::to_vec(file).unwrap();
        let reference = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
        let added = reference.get_added_tokens_decoder();
        let level = Level::read(&bytes).expect("of the common kind");
        let ours = ByteLevel::new(level, added.iter().map(|(id, token)| (*id, token))).unwrap();
        (ours, reference)
    }

    /// Files of the common kind that differ in what stands in front of the model.
    fn files() -> [Value; 10] {
        let digits = |single: bool| json!({"type": "Digits", "individual_digits": single});
        let isolated = |pattern| split(pattern, "Isolated", false);
        let (han, threes) = (isolated("[一-龥぀-ゟ゠-ヿ]+"), isolated(r"\p{N}{1,3}"));
        let (nfc, ignore) = (json!({"type": "NFC"}), json!({"ignore": true}));
        let lack = json!({"lack": true});
        let many = [threes, han, isolated(MARKS), level(false)];
        [
            (vec![level(true)], json!({})),
            (vec![digits(true), level(true)], json!({})),
            (vec![digits(true), level(true)], lack.clone()),
            (vec![isolated(LLAMA), level(false)], lack),
            (vec![digits(false), level(true)], ignore.clone()),
            (
                vec![isolated(LLAMA), level(false)],
                json!({"normalizer": nfc}),
            ),
            (vec![split(LLAMA, "Removed", true), level(false)], ignore),
            (vec![isolated(" "), level(false)], json!({})),
            (
                vec![split("[^ ]+", "Removed", true), level(true)],
                json!({}),
            ),
            (
                many.to_vec(),
                json!({"normalizer": {"type": "Sequence", "normalizers": [nfc]}}),
            ),
        ]
        .map(|(steps, rest)| file(&sequence(&steps), &rest))
    }

    #[test]
    fn kinds_of_files_give_the_ids_of_the_crate() {
        let odd = [
            "<s>",
            "<l>",
            "<r>",
            "é!",
            "e\u{301}!",
            "lo",
            "hel",
            "\t",
            "7",
            "tzhe",
            "z",
        ];
        let some = proptest::sample::select([WORDS.as_slice(), &odd].concat());
        let text = prop::collection::vec(
            prop_oneof![4 => some.prop_map(str::to_owned), 1 => "\\PC{0,4}", 1 => "[ \\n\\r]{0,3}"],
            0..14,
        );
        for (number, file) in files().iter().enumerate() {
            let (ours, reference) = both(file);
            let mut runner = TestRunner::new(Config {
                cases: 150,
                failure_persistence: None,
                ..Config::default()
            });
            let equal = |parts: Vec<String>| {
                let text = parts.concat();
                let wanted = reference.encode_fast(text.as_str(), false).unwrap();
                let ids = ours.encode(&text, true).unwrap();
                prop_assert_eq!(ids, wanted.get_ids(), "{} {:?}", number, text);
                Ok(())
            };
            runner.run(&text, equal).unwrap();
        }
    }

    #[test]
    fn real_files_are_of_the_common_kind() {
        let shared = std::env::var_os("OCTAVO_SHARED");
        let root = shared.unwrap_or_else(|| "../../../shared".into());
        let root = std::path::Path::new(&root).join("oracles/tokenizers");
        for name in ["gpt-2", "starcoder"] {
            let Ok(file) = std::fs::File::open(root.join(name).join("tokenizer.json.gz")) else {
                println!("skipped: {} is absent; set OCTAVO_SHARED", root.display());
                return;
            };
            let mut bytes = Vec::new();
            let mut file = flate2::read::GzDecoder::new(file);
            std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
            assert!(Level::read(&bytes).is_some(), "{name}");
        }
    }

    #[test]
    fn other_kinds_are_left_to_the_crate() {
        let plain = file(&level(true), &json!({}));
        let with = |pointer: &str, value: Value| {
            let mut file = plain.clone();
            *file.pointer_mut(pointer).unwrap() = value;
            Level::read(&serde_json::to_vec(&file).unwrap()).is_some()
        };
        assert!(with("/normalizer", Value::Null));
        assert!(!with("/normalizer", json!({"type": "Lowercase"})));
        assert!(!with("/pre_tokenizer", json!({"type": "Whitespace"})));
        assert!(!with("/model/type", json!("WordPiece")));
        assert!(!with("/model/vocab", json!({"a": 0})), "rules need tokens");
        assert!(!with(
            "/model",
            json!({"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []})
        ));
        assert!(!with("/model/merges", json!([["t", "zz"]])));
        assert!(with("/model/merges", json!(["#version: 0.2", "t h"])));
        // What stands for bytes that have no token is the crate's affair.
        let some = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []});
        for (field, value, known) in [
            ("unk_token", Value::Null, true),
            ("unk_token", json!("a"), false),
            ("byte_fallback", json!(false), true),
            ("byte_fallback", json!(true), false),
        ] {
            let mut some = some.clone();
            some[field] = value;
            assert_eq!(with("/model", some), known, "{field}");
        }
        assert!(
            with("/model/unk_token", json!("a")),
            "no byte lacks a token"
        );
    }
}
