//! What a grammar forces, the parser reads: random walks through the grammars of all formats give calls whose arguments
//! fit their tool's schema.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{machine_of, registry, show};
use octavo_grammar::constraint::{
    Checker, Grammar, Guided, GuidedTool, Place, Specials, Vocabulary, Word, calls,
};
use octavo_grammar::{Format, Kind};
use octavo_parser::{Finish, Message, Options, Parser, Start, Tools};
use serde_json::{Value, json};

/// Walks of each format and kind of vocabulary.
const WALKS: u64 = 5;
/// Tokens after which a walk hurries to its end.
const FREE: usize = 40;
/// Tokens after which it is given up.
const MOST: usize = 700;

fn tools() -> Vec<Value> {
    let strict = |name: &str, properties: Value, required: Value| {
        json!({"type": "function", "function": {"name": name, "strict": true, "parameters": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false}}})
    };
    vec![
        strict(
            "save_note",
            json!({"text": {"type": "string"}, "stars": {"type": "integer", "minimum": 1, "maximum": 5},
                "kind": {"enum": ["todo", "idea"]}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}}),
            json!(["text", "stars"]),
        ),
        strict(
            "plan",
            json!({"day": {"type": "string", "pattern": "^[a-c]{1,3}$"}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "where": {"type": "object", "properties": {"x": {"type": "number"}, "near": {"type": "boolean"}},
                    "required": ["x"], "additionalProperties": false}}),
            json!(["where"]),
        ),
        strict(
            "mixed",
            json!({"v": {"anyOf": [{"type": "integer", "minimum": 10}, {"type": "string", "minLength": 2}]}, "flag": {"type": "boolean"}}),
            json!(["v"]),
        ),
        json!({"type": "function", "function": {"name": "now"}}),
    ]
}

/// Steele, Lea, Flood: SplitMix64 (2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % count.max(1) as u64).unwrap()
    }
}

/// The words of a format: single letters, its markers in one piece and, where `special`, some of them as tokens.
struct Words {
    texts: Vec<(String, bool)>,
    specials: Specials,
    vocabulary: Vocabulary,
}

fn words(format: &Format, special: bool) -> Words {
    let mut texts: Vec<(String, bool)> = (b' '..=b'~')
        .map(|byte| (char::from(byte).to_string(), false))
        .collect();
    texts.push(("\n".to_owned(), false));
    texts.push(("é".to_owned(), false));
    let render = format.render.as_ref().unwrap();
    let written = [
        &render.open,
        &render.call,
        &render.join,
        &render.close,
        &render.param,
        &render.quote,
        &render.reasoning,
    ];
    let letters = written.into_iter().flat_map(|text| text.chars());
    texts.extend(letters.map(|letter| (letter.to_string(), false)));
    let markers = format
        .markers
        .values()
        .flat_map(|marker| marker.texts().0.to_vec());
    for marker in markers
        .chain([render.quote.clone()])
        .filter(|text| text.chars().count() > 1)
    {
        let bars = marker.contains(['|', '｜'])
            && marker.ends_with(['>', '['])
            && !marker.contains(char::is_whitespace);
        let lone = marker.matches(['<', '[']).count() <= 3 && !marker.contains("function<");
        texts.push((marker, special && bars && lone));
    }
    texts.sort();
    texts.dedup_by(|one, other| one.0 == other.0);
    texts.push(("<|the_end|>".to_owned(), true));
    let list: Vec<Word> = texts
        .iter()
        .map(|(text, special)| {
            if *special {
                Word::Special(text.clone())
            } else {
                Word::Bytes(text.clone().into_bytes())
            }
        })
        .collect();
    let named = texts
        .iter()
        .zip(0u32..)
        .filter(|((_, special), _)| *special);
    let specials = Specials::new(named.map(|((text, _), id)| (text.clone(), id)).collect());
    let end = u32::try_from(list.len() - 1).unwrap();
    let vocabulary = Vocabulary::new(&list, list.len(), &[end]).unwrap();
    Words {
        texts,
        specials: specials.ending(&[end]),
        vocabulary,
    }
}

/// One output, as pieces; none where it did not come to an end.
fn walk(grammar: &Grammar, words: &Words, dice: &mut Dice) -> Option<Vec<(String, bool)>> {
    let mut matcher = grammar.matcher();
    let mut mask = vec![0_u32; words.texts.len().div_ceil(32)];
    let end = words.texts.len() - 1;
    let mut out = Vec::new();
    for step in 0..MOST {
        let masked = matcher.mask(&mut mask);
        assert!(masked.is_ok(), "{masked:?} behind {out:?}");
        let allowed: Vec<usize> = (0..words.texts.len())
            .filter(|id| mask[id / 32] >> (id % 32) & 1 == 1)
            .collect();
        assert!(!allowed.is_empty(), "nothing may follow {out:?}");
        if allowed.contains(&end) && (step > FREE || dice.below(3) == 0) {
            return Some(out);
        }
        let others: Vec<usize> = allowed.into_iter().filter(|id| *id != end).collect();
        if others.is_empty() {
            return Some(out);
        }
        let long: Vec<usize> = others
            .iter()
            .copied()
            .filter(|id| words.texts[*id].0.len() > 2)
            .collect();
        let closing: Vec<usize> = others
            .iter()
            .copied()
            .filter(|id| "\"')]},".contains(&words.texts[*id].0))
            .collect();
        let pool = match dice.below(4) {
            _ if step <= FREE => &others,
            0 | 1 if !long.is_empty() => &long,
            2 if !closing.is_empty() => &closing,
            _ if !closing.is_empty() => &closing,
            _ => &others,
        };
        let id = pool[dice.below(pool.len())];
        out.push(words.texts[id].clone());
        if matcher.accept(u32::try_from(id).unwrap()).unwrap() {
            return Some(out);
        }
    }
    None
}

fn parse(format: &Format, pieces: &[(String, bool)], tools: &[Value]) -> Message {
    let machine = machine_of(format);
    let header = format.states[&format.start].kind == Kind::Header;
    let options = Options {
        tools: Tools::from_json(tools),
        start: if header {
            Start::Default
        } else {
            Start::Content
        },
        ..Options::default()
    };
    let mut parser = Parser::new(&machine, options);
    let mut message = Message::default();
    for (text, special) in pieces {
        if *special {
            parser.push_special(text);
        } else {
            parser.push_text(text);
        }
        parser.poll().iter().for_each(|event| message.add(event));
    }
    parser
        .finish(Finish::Stop)
        .iter()
        .for_each(|event| message.add(event));
    message
}

/// Each tool's name with what accepts its arguments.
fn checkers(tools: &[Value]) -> Vec<(String, Checker)> {
    tools
        .iter()
        .map(|tool| {
            let function = &tool["function"];
            let schema = function.get("parameters").cloned();
            let none = json!({"type": "object", "additionalProperties": false});
            (
                function["name"].as_str().unwrap().to_owned(),
                Checker::new(&schema.unwrap_or(none)).unwrap(),
            )
        })
        .collect()
}

/// How often, times so many by `OCTAVO_CASES`.
fn walks() -> u64 {
    let times = std::env::var("OCTAVO_CASES")
        .ok()
        .and_then(|times| times.parse::<u64>().ok());
    WALKS * times.unwrap_or(1)
}

/// Walks through one grammar; returns how many came to an end.
fn walk_often(
    format: &Format,
    special: bool,
    required: bool,
    tools: &[Value],
    checkers: &[(String, Checker)],
) -> u64 {
    let words = words(format, special);
    let guided: Vec<GuidedTool<'_>> = tools
        .iter()
        .filter_map(|tool| GuidedTool::read(&tool["function"]))
        .collect();
    let wanted = Guided {
        required,
        parallel: true,
        place: Place::Head,
    };
    let constraint = calls(format, &guided, wanted, &words.specials)
        .unwrap_or_else(|error| panic!("{}: {error}", format.name));
    let grammar = Grammar::compile(&constraint, &words.vocabulary)
        .unwrap_or_else(|error| panic!("{}: {error}\n{}", format.name, constraint.text()));
    let mut ended = 0;
    for seed in 0..walks() {
        let Some(pieces) = walk(&grammar, &words, &mut Dice(seed)) else {
            continue;
        };
        ended += 1;
        let text: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
        let message = parse(format, &pieces, tools);
        let place = format!(
            "{} special={special} required={required}: {text:?} -> {}",
            format.name,
            show(&message)
        );
        assert!(!required || !message.calls.is_empty(), "{place}");
        let clean = message.content.is_empty() && message.malformed.is_empty();
        assert!(!required || clean, "{place}");
        for call in &message.calls {
            let checker = checkers.iter().find(|(name, _)| *name == call.name);
            let fits = checker.is_some_and(|(_, checker)| checker.accepts(&call.arguments));
            assert!(fits && call.closed, "{place}");
        }
    }
    ended
}

#[test]
fn forced_calls_fit_their_schemas() {
    let (registry, tools) = (registry(), tools());
    let checkers = checkers(&tools);
    let (mut ended, mut tried) = (0, 0);
    let written = registry.formats().iter().filter(|format| {
        let render = format.render.as_ref();
        render.is_some_and(|render| render.shape("f", 0).is_some())
    });
    for (index, format) in written.enumerate() {
        // Markers as tokens and as text, calls required and not: each format with two of the four.
        for special in [false, true] {
            let required = special == (index % 2 == 0);
            tried += walks();
            ended += walk_often(format, special, required, &tools, &checkers);
        }
    }
    assert!(ended * 3 > tried, "{ended} of {tried} walks came to an end");
}
