//! The standard health service: what load balancers and orchestrators watch.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use octavo_http::AppState;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::proto::{control_service_server, inference_service_server};
use crate::status::shortened;

/// How often a watched state is looked at.
const TICK: Duration = Duration::from_millis(100);

/// The service.
pub(crate) struct Health {
    state: Arc<AppState>,
}

impl Health {
    pub(crate) fn new(state: Arc<AppState>) -> Self {
        Self { state }
    }
}

/// How a service is: the whole server and inference as `/ready`, control for as long as there is an engine to control.
fn serving(state: &AppState, service: &str) -> ServingStatus {
    let serves = match service {
        "" | inference_service_server::SERVICE_NAME => state.ready().is_ok(),
        control_service_server::SERVICE_NAME => {
            state.shutdown().accepting() && state.alive().is_ok()
        }
        _ => return ServingStatus::ServiceUnknown,
    };
    if serves {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

/// Someone who watches a service, and what was told last.
struct Watch {
    state: Arc<AppState>,
    service: String,
    told: Option<ServingStatus>,
}

impl Watch {
    /// Waits for a change. `None` when the server ends and that was told: a watch must not hold up the end.
    async fn next(&mut self) -> Option<HealthCheckResponse> {
        loop {
            let ending = !self.state.shutdown().accepting();
            let now = serving(&self.state, &self.service);
            if self.told != Some(now) {
                self.told = Some(now);
                return Some(HealthCheckResponse { status: now.into() });
            }
            if ending {
                return None;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match serving(&self.state, &service) {
            ServingStatus::ServiceUnknown => {
                let message = format!("There is no service {service:?} here.");
                Err(Status::not_found(shortened(&message)))
            }
            known => Ok(Response::new(HealthCheckResponse {
                status: known.into(),
            })),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let watch = Watch {
            state: Arc::clone(&self.state),
            service: request.into_inner().service,
            told: None,
        };
        let changes = futures::stream::unfold(watch, |mut watch| async move {
            let change = watch.next().await?;
            Some((Ok(change), watch))
        });
        Ok(Response::new(changes.boxed()))
    }
}
