//! The calls, behind keys and limits.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use octavo_edge::{Refusal, authorized, guarded};
use octavo_http::{ACCESS, AppState};
use tonic_health::pb::health_server::HealthServer;
pub use tonic_reflection::server::Error as ReflectionError;

use crate::control::Control;
use crate::health::Health;
use crate::inference::Inference;
use crate::proto::control_service_server::ControlServiceServer;
use crate::proto::inference_service_server::InferenceServiceServer;
use crate::status::shaped;

/// Builds the calls. The server must speak HTTP/2.
///
/// # Errors
/// The descriptors cannot be read.
pub fn router(state: &Arc<AppState>) -> Result<Router, ReflectionError> {
    let settings = state.settings();
    let limit = settings.max_body_bytes;
    let inference = InferenceServiceServer::new(Inference::new(Arc::clone(state)));
    let control = ControlServiceServer::new(Control::new(Arc::clone(state)));
    let own = Router::new()
        .route_service(
            "/octavo.v1.InferenceService/{method}",
            inference.max_decoding_message_size(limit),
        )
        .route_service(
            "/octavo.v1.ControlService/{method}",
            control.max_decoding_message_size(limit),
        )
        .layer(from_fn_with_state(Arc::clone(state), bounded));
    let health = HealthServer::new(Health::new(Arc::clone(state)));
    let router = reflected(own)?.route_service("/grpc.health.v1.Health/{method}", health);
    let (keys, callers) = (Arc::clone(state.keys()), Arc::clone(state.callers()));
    let router = authorized(router, keys, ACCESS, callers);
    let metrics = Arc::clone(state.metrics());
    Ok(guarded(router, metrics, settings.access_log).layer(from_fn(shaped)))
}

/// Adds the services that tell clients what there is.
fn reflected(router: Router) -> Result<Router, ReflectionError> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(router
        .route_service(
            "/grpc.reflection.v1.ServerReflection/{method}",
            builder().build_v1()?,
        )
        .route_service(
            "/grpc.reflection.v1alpha.ServerReflection/{method}",
            builder().build_v1alpha()?,
        ))
}

/// Reads the whole request before it is looked at, within the limits that HTTP's bodies have.
async fn bounded(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let (mut head, mut body) = request.into_parts();
    match state.bodies().bytes(&head, &mut body).await {
        Ok(read) => {
            let body = Body::from(read.bytes.clone());
            // Its part of the memory that all bodies may take is held until the call has read it.
            head.extensions.insert(Arc::new(read));
            next.run(Request::from_parts(head, body)).await
        }
        Err(error) => Refusal(error).into_response(),
    }
}
