//! The operations of the document, route by route.

use octavo_api::{
    ChatBatchBody, ChatBody, ChatChunk, ChatCompletion, ClassifyAnswer, ClassifyBody, CohereBody,
    CohereEmbedAnswer, Completion, CompletionBody, CountBody, DerenderChatBody,
    DerenderCompletionBody, Derendered, DetokenizeBody, DetokenizeResponse, EmbedBody,
    EmbeddingAnswer, GenerateBody, GenerateResponse, InputItems, InputTokenCount, JsonSchema,
    LikelihoodBody, MessageAnswer, MessageEvent, MessagesBody, ModelCard, ModelList, NumberedEvent,
    PoolBody, PooledAnswer, RenderChatBody, RenderCompletionBody, RenderedRequest, RerankAnswer,
    RerankBody, ResponseDeleted, ResponseObject, ResponsesBody, Schemas, ScoreAnswer, ScoreBody,
    TokenCount, TokenizeBody, TokenizeResponse,
};
use serde_json::{Value, json};

use crate::control;

/// What a route is for; decides how it may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Makes tokens.
    Inference,
    /// Vectors, labels and scores, of models that pool.
    Pooling,
    /// Text and token ids, without the engine.
    Text,
    /// Says how the server is.
    Status,
    /// Changes the engine's state.
    Control,
    /// The document itself, and its page.
    Docs,
}

impl Kind {
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Pooling => "pooling",
            Self::Text => "text",
            Self::Status => "status",
            Self::Control => "control",
            Self::Docs => "docs",
        }
    }

    /// The media type of an answer that is no JSON.
    pub(super) fn text_type(self) -> &'static str {
        match self {
            Self::Docs => "text/html",
            _ => "text/plain",
        }
    }
}

/// A key of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) schema: Value,
}

/// What a client sends.
pub(super) struct Sent {
    pub(super) schema: Value,
    pub(super) required: bool,
    pub(super) example: Option<Value>,
}

/// One operation.
pub(super) struct Operation {
    /// As it stands in the table of routes.
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) kind: Kind,
    pub(super) summary: String,
    pub(super) query: Vec<Parameter>,
    pub(super) body: Option<Sent>,
    /// `None`: text.
    pub(super) answer: Option<Value>,
    /// The data of an event, where the answer may be a stream.
    pub(super) event: Option<Value>,
    /// Whether the answer may be bytes.
    pub(super) bytes: bool,
}

impl Operation {
    fn get(path: &'static str, kind: Kind, summary: impl Into<String>, answer: Value) -> Self {
        Self {
            path,
            method: "get",
            kind,
            summary: summary.into(),
            query: Vec::new(),
            body: None,
            answer: Some(answer),
            event: None,
            bytes: false,
        }
    }

    fn bytes(self) -> Self {
        Self {
            bytes: true,
            ..self
        }
    }

    fn streamed(self, event: Value) -> Self {
        Self {
            event: Some(event),
            ..self
        }
    }

    /// The same, but that the answer may be of another type too.
    fn or(self, other: Value) -> Self {
        let either = self.answer.map(|one| json!({"anyOf": [one, other]}));
        Self {
            answer: either,
            ..self
        }
    }

    /// Whether the engine makes something of the body, so that headers may say where and when.
    pub(super) fn queued(&self) -> bool {
        let makes = matches!(self.kind, Kind::Inference | Kind::Pooling);
        makes && self.body.is_some() && self.path != "/v1/messages/count_tokens"
    }

    /// Statuses with which it may refuse, and why.
    pub(super) fn refusals(&self, open: bool) -> Vec<(&'static str, &'static str)> {
        let reads = self.body.is_some();
        let named = self.path.contains('{');
        let asks = reads || named || !self.query.is_empty() || self.kind == Kind::Control;
        let makes = matches!(self.kind, Kind::Inference | Kind::Pooling);
        let control = self.kind == Kind::Control;
        let works = reads || control || makes;
        let table = [
            (
                asks,
                "400",
                "The request is at fault; the message names the field.",
            ),
            (!open, "401", "No key, or one that is not known."),
            (!open, "403", "The key lacks the role."),
            (reads || named, "404", "No such model or response."),
            (
                control,
                "409",
                "The state that the engine is in does not allow it.",
            ),
            (reads, "413", "The body is too large."),
            (!open, "429", "Too many requests are open."),
            (true, "500", "The server failed."),
            (control, "501", "Not in octavo."),
            (works || open, "503", "The server cannot do it now."),
            (
                makes,
                "504",
                "The answer took longer than --request-timeout.",
            ),
        ];
        let held = table.into_iter().filter(|(holds, ..)| *holds);
        held.map(|(_, status, why)| (status, why)).collect()
    }
}

/// A route that reads a body of one type and answers with another; the example is answered with 200 by any model.
fn reads<B: JsonSchema, A: JsonSchema>(
    of: &mut Schemas,
    path: &'static str,
    kind: Kind,
    summary: &'static str,
    example: Value,
) -> Operation {
    let body = Sent {
        schema: of.body::<B>(),
        required: true,
        example: Some(example),
    };
    Operation {
        method: "post",
        body: Some(body),
        ..Operation::get(path, kind, summary, of.answer::<A>())
    }
}

/// All operations.
pub(super) fn all(of: &mut Schemas) -> Vec<Operation> {
    let mut all = chats(of);
    all.extend(responses(of));
    all.extend(pooling(of));
    all.extend(text(of));
    all.extend(status(of));
    all.extend(control());
    all
}

fn chats(of: &mut Schemas) -> Vec<Operation> {
    use Kind::Inference;
    let says = json!([{"role": "user", "content": "What is the capital of France?"}]);
    let asked = json!({"messages": says, "max_tokens": 16});
    vec![
        reads::<ChatBody, ChatCompletion>(
            of,
            "/v1/chat/completions",
            Inference,
            "Continue a conversation.",
            asked.clone(),
        )
        .streamed(of.answer::<ChatChunk>()),
        reads::<ChatBatchBody, ChatCompletion>(
            of,
            "/v1/chat/completions/batch",
            Inference,
            "Continue several conversations: a choice for each.",
            json!({"messages": [says, says], "max_tokens": 16}),
        ),
        reads::<CompletionBody, Completion>(
            of,
            "/v1/completions",
            Inference,
            "Continue a text.",
            json!({"prompt": "The capital of France is", "max_tokens": 4}),
        )
        .streamed(of.answer::<Completion>()),
        reads::<MessagesBody, MessageAnswer>(
            of,
            "/v1/messages",
            Inference,
            "Continue a conversation, Anthropic's way.",
            asked,
        )
        .streamed(of.answer::<MessageEvent>()),
        reads::<CountBody, TokenCount>(
            of,
            "/v1/messages/count_tokens",
            Inference,
            "Count the tokens of a conversation.",
            json!({"messages": says}),
        ),
        reads::<GenerateBody, GenerateResponse>(
            of,
            "/inference/v1/generate",
            Inference,
            "Token ids in, token ids out.",
            json!({"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4}}),
        )
        .streamed(of.answer::<GenerateResponse>()),
    ]
}

fn responses(of: &mut Schemas) -> Vec<Operation> {
    use Kind::Inference;
    const ONE: &str = "/v1/responses/{id}";
    let response = of.answer::<ResponseObject>();
    let found = Operation::get(ONE, Inference, "Find a response.", response.clone());
    let deleted = of.answer::<ResponseDeleted>();
    let forgotten = Operation::get(ONE, Inference, "Forget a response.", deleted);
    let cancel = "End a response that runs in the background.";
    let cancelled = Operation::get("/v1/responses/{id}/cancel", Inference, cancel, response);
    let list = "List the input items of a response.";
    let items = of.answer::<InputItems>();
    let listed = Operation::get("/v1/responses/{id}/input_items", Inference, list, items);
    vec![
        reads::<ResponsesBody, ResponseObject>(
            of,
            "/v1/responses",
            Inference,
            "Create a response.",
            json!({"input": "What is the capital of France?", "max_output_tokens": 16}),
        )
        .streamed(of.answer::<NumberedEvent>()),
        reads::<ResponsesBody, InputTokenCount>(
            of,
            "/v1/responses/input_tokens",
            Kind::Text,
            "Count the tokens of a response's prompt.",
            json!({"input": "What is the capital of France?"}),
        ),
        Operation {
            query: vec![
                parameter("stream", json!({"type": "boolean"})),
                parameter("starting_after", json!({"type": "integer", "minimum": 0})),
            ],
            ..found.streamed(of.answer::<NumberedEvent>())
        },
        Operation {
            method: "delete",
            ..forgotten
        },
        Operation {
            method: "post",
            ..cancelled
        },
        Operation {
            query: vec![
                parameter(
                    "limit",
                    json!({"type": "integer", "minimum": 1, "maximum": 100}),
                ),
                parameter("order", json!({"enum": ["asc", "desc"]})),
                parameter("after", json!({"type": "string"})),
            ],
            ..listed
        },
    ]
}

/// Which of them a model answers is its own; so there are no examples, but of the one for models that make tokens.
fn pooling(of: &mut Schemas) -> Vec<Operation> {
    let pooled = "Vectors as the model pools them, one of a text or of each token.";
    let mut all = vec![
        pools::<EmbedBody, EmbeddingAnswer>(of, "/v1/embeddings", "A vector of each text.").bytes(),
        pools::<CohereBody, CohereEmbedAnswer>(of, "/v2/embed", "The same, Cohere's way."),
        pools::<ClassifyBody, ClassifyAnswer>(of, "/classify", "Labels of each text."),
        pools::<PoolBody, PooledAnswer>(of, "/pooling", pooled).bytes(),
        reads::<LikelihoodBody, ScoreAnswer>(
            of,
            "/generative_scoring",
            Kind::Pooling,
            "Scores by what a model that makes tokens would say next.",
            json!({"query": "Lima lies in", "items": [" Peru", " Chile"], "label_token_ids": [1, 2]}),
        ),
    ];
    for path in ["/score", "/v1/score"] {
        let score = "How well the texts of each pair fit.";
        all.push(pools::<ScoreBody, ScoreAnswer>(of, path, score));
    }
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        let rank = "Documents in the order in which they answer a query.";
        all.push(pools::<RerankBody, RerankAnswer>(of, path, rank));
    }
    all
}

fn pools<B: JsonSchema, A: JsonSchema>(
    of: &mut Schemas,
    path: &'static str,
    summary: &'static str,
) -> Operation {
    let mut operation = reads::<B, A>(of, path, Kind::Pooling, summary, Value::Null);
    if let Some(body) = &mut operation.body {
        body.example = None;
    }
    operation
}

fn text(of: &mut Schemas) -> Vec<Operation> {
    use Kind::Text;
    let said = json!({"choices": [{"index": 0, "token_ids": [1, 2], "finish_reason": "stop"}]});
    let rendered = reads::<RenderCompletionBody, RenderedRequest>(
        of,
        "/v1/completions/render",
        Text,
        "Render each prompt to a body of /inference/v1/generate.",
        json!({"prompt": ["one", "two"]}),
    );
    vec![
        reads::<RenderChatBody, RenderedRequest>(
            of,
            "/v1/chat/completions/render",
            Text,
            "Render a conversation to a body of /inference/v1/generate.",
            json!({"messages": [{"role": "user", "content": "hi"}]}),
        ),
        Operation {
            answer: rendered
                .answer
                .map(|one| json!({"type": "array", "items": one})),
            ..rendered
        },
        reads::<DerenderChatBody, ChatCompletion>(
            of,
            "/v1/chat/completions/derender",
            Text,
            "Turn an answer of /inference/v1/generate, or an event of it, into that of a chat.",
            json!({"generate_response": said}),
        )
        .or(of.answer::<Derendered<ChatChunk>>()),
        reads::<DerenderCompletionBody, Completion>(
            of,
            "/v1/completions/derender",
            Text,
            "Turn answers of /inference/v1/generate, or an event, into that of a completion.",
            json!({"generate_responses": [said]}),
        )
        .or(of.answer::<Derendered<Completion>>()),
        reads::<TokenizeBody, TokenizeResponse>(
            of,
            "/tokenize",
            Text,
            "Tokenize a text or a conversation.",
            json!({"prompt": "Hello"}),
        ),
        reads::<DetokenizeBody, DetokenizeResponse>(
            of,
            "/detokenize",
            Text,
            "Turn token ids into text.",
            json!({"tokens": [1, 2, 3]}),
        ),
    ]
}

fn status(of: &mut Schemas) -> Vec<Operation> {
    use Kind::{Control, Docs, Status};
    let word = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let get = |path, summary, answer| Operation::get(path, Status, summary, answer);
    let text = |operation: Operation| Operation {
        answer: None,
        ..operation
    };
    let any = json!({"type": "object"});
    let page = Operation::get("/docs", Docs, "The document as a page.", Value::Null);
    vec![
        get(
            "/v1/models",
            "List the served names.",
            of.answer::<ModelList>(),
        ),
        get(
            "/v1/models/{*name}",
            "Describe a served name.",
            of.answer::<ModelCard>(),
        ),
        get(
            "/health",
            "Whether the engine is there or may come back.",
            word("status"),
        ),
        get("/ready", "Whether requests are served.", word("status")),
        get("/version", "The server's version.", word("version")),
        text(get("/metrics", "Prometheus metrics.", Value::Null)),
        get(
            "/server_info",
            "What the server is and how it was set up.",
            any.clone(),
        ),
        Operation {
            method: "post",
            kind: Control,
            ..get("/shutdown", "End the server in order.", word("status"))
        },
        Operation::get("/openapi.json", Docs, "This document.", any),
        text(page),
    ]
}

fn parameter(name: &'static str, schema: Value) -> Parameter {
    Parameter { name, schema }
}

/// The operations of the engine's control, from their table.
fn control() -> Vec<Operation> {
    control::described()
        .map(|told| {
            let operation = Operation::get(told.path, Kind::Control, told.summary, told.answer);
            Operation {
                method: if told.reads { "get" } else { "post" },
                query: told
                    .query
                    .iter()
                    .map(|name| parameter(name, of_query(name)))
                    .collect(),
                body: told.body.map(|(schema, required)| Sent {
                    schema,
                    required,
                    example: None,
                }),
                ..operation
            }
        })
        .collect()
}

/// What a key of a control route's query may be.
fn of_query(name: &str) -> Value {
    match name {
        "mode" => json!({"enum": ["abort", "wait", "keep"]}),
        "level" => json!({"enum": [0, 1, 2]}),
        "tags" => {
            let tag = json!({"enum": ["weights", "kv_cache", "scheduling"]});
            json!({"type": "array", "items": tag, "minItems": 1})
        }
        _ => json!({"type": "boolean"}),
    }
}
