//! Pieces of answers as messages; a whole answer is the fold over those of a stream.

use octavo_api::{FinishReason as Reason, PromptLogprobs, StopReason, Usage as Counted};
use octavo_http::{End, Gained};
use octavo_parser::Event;
use octavo_render::{Renderer, TokenLogprobs as Told};
use serde_json::{Map, Value};

use crate::proto::finish::Stop;
use crate::proto::{
    Finish, FinishReason, GenerateResponse, GenerateStreamResponse, Output, TokenLogprob,
    TokenLogprobs, ToolCall, Usage,
};

/// What of a piece is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Token ids.
    pub(crate) token_ids: bool,
    /// Thoughts.
    pub(crate) reasoning: bool,
    /// Whether alternatives come best first, so that their ranks are known.
    pub(crate) ranked: bool,
}

/// What an output gained, as a message; `None`: nothing that is shown.
pub(crate) fn gained(piece: Gained, style: Style) -> Option<Output> {
    let bare = Output {
        index: piece.index,
        ..Output::default()
    };
    let mut output = Output {
        text: piece.text,
        ..bare.clone()
    };
    for event in piece.events {
        add_event(&mut output, event, style);
    }
    if style.token_ids {
        output.token_ids = piece.tokens;
    }
    let told = piece.logprobs.into_iter();
    output.logprobs = told.map(|token| logprobs(token, style.ranked)).collect();
    output.finish = piece.end.map(finish);
    (output != bare).then_some(output)
}

fn add_event(output: &mut Output, event: Event, style: Style) {
    let place = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    match event {
        Event::ContentDelta { text } => output.text.push_str(&text),
        Event::ReasoningDelta { text, .. } if style.reasoning => output.reasoning.push_str(&text),
        Event::CallOpen { index, id, name } => output.tool_calls.push(ToolCall {
            index: place(index),
            id,
            name,
            arguments: String::new(),
        }),
        Event::ArgsDelta { index, json } => add_call(
            output,
            ToolCall {
                index: place(index),
                arguments: json,
                ..ToolCall::default()
            },
        ),
        Event::ReasoningDelta { .. }
        | Event::CallClose { .. }
        | Event::Malformed { .. }
        | Event::End { .. } => {}
    }
}

/// Adds what a call gained: to the call of its place, if that is the last one.
fn add_call(output: &mut Output, more: ToolCall) {
    match output.tool_calls.last_mut() {
        Some(last) if last.index == more.index => last.arguments.push_str(&more.arguments),
        _ => output.tool_calls.push(more),
    }
}

fn finish(end: End) -> Finish {
    let reason = match end.reason {
        Reason::Stop => FinishReason::Stop,
        Reason::Length => FinishReason::Length,
        Reason::ToolCalls => FinishReason::ToolCalls,
        Reason::Repetition => FinishReason::Repetition,
        Reason::Abort => FinishReason::Abort,
        // Such an end comes as an error.
        Reason::Error => FinishReason::Unspecified,
    };
    Finish {
        reason: reason.into(),
        completion_tokens: end.usage.completion_tokens as u64,
        stop: end.stop.map(|stop| match stop {
            StopReason::Token(id) => Stop::StopTokenId(id),
            StopReason::Text(text) => Stop::StopText(text),
        }),
    }
}

fn logprobs(told: Told, ranked: bool) -> TokenLogprobs {
    let mut ids = told.ids.into_iter();
    let token = TokenLogprob {
        token_id: ids.next().unwrap_or_default(),
        logprob: told.token.logprob,
        rank: told.rank,
        token: told.token.bytes,
    };
    let top = ids
        .zip(told.top)
        .zip(1..)
        .map(|((id, top), place)| TokenLogprob {
            token_id: id,
            logprob: top.logprob,
            rank: if ranked { place } else { 0 },
            token: top.bytes,
        });
    TokenLogprobs {
        token: Some(token),
        top: top.collect(),
    }
}

/// A prompt's log probabilities: of each token, by id, the token itself and then its alternatives.
pub(crate) fn of_prompt(renderer: &Renderer, told: PromptLogprobs) -> Vec<TokenLogprobs> {
    let of_token = |map: Map<String, Value>| {
        let mut entries = map.into_iter().map(|(id, entry)| {
            let token_id: i32 = id.parse().unwrap_or_default();
            let bytes = renderer.tokenizer().token_bytes(token_id.cast_unsigned());
            TokenLogprob {
                token_id,
                logprob: entry["logprob"].as_f64().unwrap_or_default(),
                rank: entry["rank"]
                    .as_i64()
                    .and_then(|rank| i32::try_from(rank).ok())
                    .unwrap_or_default(),
                token: bytes.unwrap_or_default().to_vec(),
            }
        });
        TokenLogprobs {
            token: entries.next(),
            top: entries.collect(),
        }
    };
    told.into_iter()
        .map(|map| map.map_or_else(TokenLogprobs::default, of_token))
        .collect()
}

/// Tokens counted.
pub(crate) fn usage(counted: &Counted) -> Usage {
    let cached = counted.prompt_tokens_details.as_ref();
    let thoughts = counted.completion_tokens_details.as_ref();
    Usage {
        prompt_tokens: counted.prompt_tokens as u64,
        completion_tokens: counted.completion_tokens as u64,
        cached_tokens: cached.map(|details| details.cached_tokens as u64),
        reasoning_tokens: thoughts.map(|details| details.reasoning_tokens as u64),
    }
}

/// Adds a message of a stream to the whole answer.
pub(crate) fn add(answer: &mut GenerateResponse, message: GenerateStreamResponse) {
    answer.usage = answer.usage.take().or(message.usage);
    answer.weight_versions.extend(message.weight_versions);
    match (&mut answer.prompt, message.prompt) {
        (Some(known), Some(more)) => {
            known.token_ids.extend(more.token_ids);
            known.logprobs.extend(more.logprobs);
        }
        (known, more) => *known = known.take().or(more),
    }
    let Some(gained) = message.output else {
        return;
    };
    let place = gained.index as usize;
    while answer.outputs.len() <= place {
        answer.outputs.push(Output {
            index: u32::try_from(answer.outputs.len()).unwrap_or(u32::MAX),
            ..Output::default()
        });
    }
    let output = &mut answer.outputs[place];
    output.text.push_str(&gained.text);
    output.reasoning.push_str(&gained.reasoning);
    for call in gained.tool_calls {
        add_call(output, call);
    }
    output.token_ids.extend(gained.token_ids);
    output.logprobs.extend(gained.logprobs);
    output.finish = output.finish.take().or(gained.finish);
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style {
        token_ids: true,
        reasoning: true,
        ranked: true,
    };

    fn piece(index: u32, text: &str, events: Vec<Event>, tokens: &[i32]) -> Gained {
        Gained {
            index,
            text: text.to_owned(),
            events,
            tokens: tokens.to_vec(),
            logprobs: Vec::new(),
            prompt_logprobs: None,
            end: None,
        }
    }

    fn call(index: usize, json: &str) -> Event {
        Event::ArgsDelta {
            index,
            json: json.to_owned(),
        }
    }

    fn open(index: usize) -> Event {
        Event::CallOpen {
            index,
            id: format!("call_{index}"),
            name: "f".to_owned(),
        }
    }

    #[test]
    fn what_shows_nothing_is_no_message() {
        assert_eq!(gained(piece(3, "", vec![], &[]), STYLE), None);
        let hidden = Style {
            token_ids: false,
            reasoning: false,
            ..STYLE
        };
        let thought = || {
            vec![Event::ReasoningDelta {
                text: "hm".to_owned(),
                tokens: 1,
            }]
        };
        assert_eq!(gained(piece(0, "", thought(), &[1]), hidden), None);
        let shown = gained(piece(0, "", thought(), &[1]), STYLE).unwrap();
        assert_eq!((shown.reasoning.as_str(), shown.token_ids), ("hm", vec![1]));
    }

    #[test]
    fn a_whole_answer_is_the_fold_of_its_stream() {
        let mut answer = GenerateResponse::default();
        let pieces = [
            piece(1, "b", vec![], &[2]),
            piece(0, "", vec![open(0), call(0, "{\"a\"")], &[1]),
            piece(0, "", vec![call(0, ":1}"), open(1), call(1, "{}")], &[3]),
        ];
        for piece in pieces {
            let message = GenerateStreamResponse {
                output: gained(piece, STYLE),
                ..GenerateStreamResponse::default()
            };
            add(&mut answer, message);
        }
        let [first, second] = &answer.outputs[..] else {
            panic!("two outputs: {answer:?}");
        };
        let arguments: Vec<&str> = first
            .tool_calls
            .iter()
            .map(|call| call.arguments.as_str())
            .collect();
        assert_eq!(arguments, ["{\"a\":1}", "{}"]);
        assert_eq!(first.token_ids, [1, 3]);
        assert_eq!((second.index, second.text.as_str()), (1, "b"));
    }
}
