//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's API as a projection of the same outputs.

mod events;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use octavo_api::{ApiError, EndReason, MessageAnswer, MessagesRequest, MessagesUsage, TokenCount};
use octavo_edge::{Refusal, RequestId, unix_seconds, warn};
use octavo_render::Prepared;

use crate::app::{App, AppState};
use crate::blocks::{Blocks, Gathered};
use crate::envelope::Identity;
use crate::live;
use crate::output::{Output, Piece};
use crate::outputs::Outputs;
use crate::route::Route;
use crate::start::{Arrived, arrive, checked, model, render, start};

pub(crate) use events::Events;

/// Longest prompt whose tokens are counted, in bytes of text: as of `/tokenize`.
pub(crate) const MAX_TEXT: usize = 8 << 20;

pub(crate) async fn create(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let ready = checked(&state, body, |app, body| {
        let model = model(app, &body)?;
        let mut request = MessagesRequest::from_body(body)?;
        let prepared = budgeted(app, &mut request)?;
        Ok((model, request, prepared))
    });
    let (model, request, prepared) = ready.await?;
    let MessagesRequest { mut chat, ignored } = request;
    pinned.apply(&mut chat.scheduling)?;
    let identity = Identity {
        route: Route::Chat,
        id: format!("msg_{}", id.as_str()),
        created: unix_seconds(),
        model,
        parent: id.parent(),
    };
    let prompt_tokens = prepared.prompt.len();
    let (stream, shown) = (chat.stream, chat.reasoning.include);
    let output = start(&state.app, &identity, prepared, chat, "messages", at)?;
    let response = if stream {
        let events = Events::new(&identity, id.as_str(), prompt_tokens, shown);
        let keep_alive = state.app.settings.keep_alive;
        live::answer(Outputs::of(output), events, &identity.id, keep_alive).await
    } else {
        Json(whole(output, identity, shown).await?).into_response()
    };
    Ok(warn(response, &ignored))
}

/// Renders a chat; a budget of thoughts whose end no token of the model marks has no effect, which the answer tells.
fn budgeted(app: &App, request: &mut MessagesRequest) -> Result<Prepared, ApiError> {
    match render(app, &mut request.chat) {
        Err(error) if error.param.as_deref() == Some("thinking_token_budget") => {
            request.chat.sampling.extras.thinking = None;
            request.ignored.push("thinking.budget_tokens".to_owned());
            render(app, &mut request.chat)
        }
        other => other,
    }
}

/// Waits for the end and answers with all blocks.
async fn whole(
    mut output: Output,
    identity: Identity,
    shown: bool,
) -> Result<MessageAnswer, ApiError> {
    let mut blocks = Blocks::new(shown);
    let mut gathered = Gathered::default();
    let mut piece = Piece::default();
    let end = loop {
        output.next(&mut piece).await?;
        blocks.piece(&piece.text, &mut piece.events, &mut |_, change| {
            gathered.add(change);
        });
        if let Some(end) = piece.end.take() {
            break end;
        }
    };
    // Where a stop string ended the text, the engine still runs the request.
    drop(output);
    blocks.end(&mut |_, change| gathered.add(change));
    let (reason, stop_sequence) = EndReason::of(end.reason, end.stop);
    let usage = MessagesUsage::from(&end.usage);
    Ok(MessageAnswer {
        content: gathered.blocks(),
        stop_reason: Some(reason),
        stop_sequence,
        ..MessageAnswer::begin(identity.id, identity.model, usage)
    })
}

/// Counts the tokens of the prompt that a request would have.
pub(crate) async fn count_tokens(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Refusal> {
    let body = state.bodies.read(request).await?;
    let counted = checked(&state, body, |app, body| {
        model(app, &body)?;
        let request = MessagesRequest::for_count(body)?;
        let renderer = &app.renderer;
        let tokens = renderer.chat_tokens(&request.chat, MAX_TEXT, renderer.limits())?;
        let input_tokens = tokens.len();
        Ok((TokenCount { input_tokens }, request.ignored))
    });
    let (count, ignored) = counted.await?;
    Ok(warn(Json(count).into_response(), &ignored))
}
