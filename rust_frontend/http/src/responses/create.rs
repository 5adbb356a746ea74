//! `POST /v1/responses`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use octavo_api::{ApiError, ResponseObject, ResponsesRequest, id_prefix};
use octavo_edge::{Caller, Refusal, RequestId, unix_seconds, warn};
use serde_json::Value;
use uuid::Uuid;

use super::events::{Run, follow};
use super::job::{self, Job};
use super::prepare::{history, prepare};
use super::references::{input_id, resolve};
use super::store::Record;
use super::writer::Writer;
use crate::app::AppState;
use crate::envelope::Identity;
use crate::live;
use crate::output::{Output, Piece};
use crate::outputs::Outputs;
use crate::route::Route;
use crate::start::{Arrived, arrive, checked, model, start};

pub(crate) async fn create(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    caller: Option<Extension<Caller>>,
    request: Request,
) -> Result<Response, Refusal> {
    let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let ready = checked(&state, body, |app, body| {
        let model = model(app, &body)?;
        let mut request = ResponsesRequest::from_body(body)?;
        request.object.model = model;
        Ok(request)
    });
    let mut request = ready.await?;
    check_store(&state, &mut request.object)?;
    resolve(&state.responses, &mut request.input, &caller).await?;
    let previous = request.object.previous_response_id.as_deref();
    let before = history(&state.responses, previous, &caller).await?;
    let (mut request, prepared) = prepare(&state, request, before).await?;
    name(&mut request);
    pinned.apply(&mut request.chat.scheduling)?;

    let identity = identity(&request.object, &id);
    let (stream, shown) = (request.chat.stream, request.chat.reasoning.include);
    let told = stream || request.object.background;
    let output = start(
        &state.app,
        &identity,
        prepared,
        request.chat,
        "responses",
        at,
    )?;
    let background = request.object.background;
    let writer = Writer::new(
        request.object.clone(),
        shown,
        request.carries_thoughts,
        told,
    );
    let record = Record {
        owner: caller,
        object: request.object,
        input: request.input,
        events: None,
    };
    let run = Run::new(writer, Arc::clone(&state), record);
    let response = if background {
        begin(run, output, stream).await?
    } else if stream {
        let keep_alive = state.app.settings.keep_alive;
        live::answer(Outputs::of(output), run, &identity.id, keep_alive).await
    } else {
        Json(whole(run, output).await?).into_response()
    };
    Ok(warn(response, &request.ignored))
}

fn identity(object: &ResponseObject, id: &RequestId) -> Identity {
    Identity {
        route: Route::Chat,
        id: object.id.clone(),
        created: object.created_at,
        model: object.model.clone(),
        parent: id.parent(),
    }
}

/// Says that nothing is kept where that is so, and refuses what needs it.
pub(super) fn check_store(state: &AppState, object: &mut ResponseObject) -> Result<(), ApiError> {
    if state.responses.store.is_some() {
        return Ok(());
    }
    object.store = false;
    let asked = [
        (object.background, "background"),
        (
            object.previous_response_id.is_some(),
            "previous_response_id",
        ),
    ];
    match asked.iter().find(|(asked, _)| *asked) {
        Some((_, name)) => {
            let message = format!(
                "'{name}' cannot be used here: this server keeps no responses (--response-store-max-bytes 0). Leave it out."
            );
            Err(ApiError::unsupported(*name, message))
        }
        None => Ok(()),
    }
}

/// Gives the response and the items of its request their ids, which nobody can guess.
fn name(request: &mut ResponsesRequest) {
    request.object.id = format!("resp_{}", Uuid::new_v4().simple());
    request.object.created_at = unix_seconds();
    for (index, item) in request.input.iter_mut().enumerate() {
        let id = input_id(id_prefix(item), &request.object.id, index);
        if let Value::Object(fields) = item
            && !fields.get("id").is_some_and(Value::is_string)
        {
            fields.insert("id".to_owned(), Value::String(id));
        }
    }
}

/// Waits for the end and answers with the whole response.
async fn whole(mut run: Run, mut output: Output) -> Result<ResponseObject, ApiError> {
    let mut piece = Piece::default();
    loop {
        output.next(&mut piece).await?;
        if run.writer.take(&mut piece) {
            // Where a stop string ended the text, the engine still runs the request.
            drop(output);
            run.keep(None).await;
            return Ok(run.writer.object().clone());
        }
    }
}

/// Starts a response in the background.
async fn begin(mut run: Run, output: Output, stream: bool) -> Result<Response, ApiError> {
    let state = Arc::clone(&run.state);
    let job = Arc::new(Job::new(run.record.owner.clone()));
    let id = run.record.object.id.clone();
    run.kept(None).await?;
    state.responses.run(&id, &job);
    let queued = job::start(run, output, Arc::clone(&job), stream);
    if stream {
        return Ok(follow(job, None, state.app.settings.keep_alive));
    }
    Ok(Json(queued).into_response())
}
