//! Asks for a key before a route is reached.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use octavo_api::ApiError;

use crate::admission::PerCaller;
use crate::caller::Caller;
use crate::held::HeldBody;
use crate::keys::{KeyRing, Keys};
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::roles::{Role, Roles};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, key or not: probes of orchestrators.
    Open,
    /// Clients with a key of this role.
    Needs(Role),
}

/// Paths, as they are in the router, and who may use them. A path that is not listed needs [`Role::Admin`].
pub type AccessTable = &'static [(&'static str, Access)];

#[derive(Clone)]
struct Door {
    keys: Arc<Keys>,
    table: AccessTable,
    open: Arc<PerCaller>,
}

/// Puts the keys in front of all routes of the router, if any are configured. `open` counts what each caller has open.
pub fn authorized(
    router: Router,
    keys: Arc<Keys>,
    table: AccessTable,
    open: Arc<PerCaller>,
) -> Router {
    if !keys.required() {
        return router;
    }
    router.layer(from_fn_with_state(Door { keys, table, open }, ask))
}

async fn ask(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    match check(&door, &request) {
        Ok(None) => next.run(request).await,
        Ok(Some(caller)) => {
            let ticket = match door.open.enter(&caller) {
                Ok(ticket) => ticket,
                Err(error) => return refuse(error),
            };
            request.extensions_mut().insert(caller.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(caller);
            if ticket.is_none() {
                return response;
            }
            response.map(|body| Body::new(HeldBody::new(body, ticket)))
        }
        Err(error) => refuse(error),
    }
}

/// Says who asks; `None` where everybody may.
fn check(door: &Door, request: &Request) -> Result<Option<Caller>, ApiError> {
    let path = request.extensions().get::<MatchedPath>();
    let access = path.and_then(|path| {
        let listed = door.table.iter().find(|(known, _)| *known == path.as_str());
        listed.map(|(_, access)| *access)
    });
    let role = match access.unwrap_or(Access::Needs(Role::Admin)) {
        Access::Open => return Ok(None),
        Access::Needs(role) => role,
    };
    let (caller, roles) = identify(&door.keys.ring(), request)?;
    if roles.has(role) {
        return Ok(Some(caller));
    }
    Err(ApiError::forbidden(format!(
        "The API key or certificate is known, but it lacks the role {} that this route asks for.",
        role.name()
    )))
}

/// The caller by key and by certificate, with the roles of both: SDKs send some key in any case.
fn identify(ring: &KeyRing, request: &Request) -> Result<(Caller, Roles), ApiError> {
    let peer = request.extensions().get::<Peer>();
    let names = peer.map_or(&[][..], |peer| &peer.names[..]);
    let by_name = ring.roles_of_certificate(names);
    let key = presented(request.headers());
    if let Some((key, roles)) = key.and_then(|key| Some((key, ring.roles(key)?))) {
        let all = by_name.map_or(roles, |more| roles.and(more));
        return Ok((Caller::of_key(key), all));
    }
    if let Some(roles) = by_name {
        return Ok((Caller::of_names(names), roles));
    }
    Err(ApiError::unauthenticated(match key {
        Some(_) => {
            "The API key (Authorization: Bearer KEY, or x-api-key: KEY) is not known to this server. Check it."
        }
        None => {
            "No API key was sent. Send one in the header Authorization: Bearer KEY, or x-api-key: KEY."
        }
    }))
}

/// The key of a request: `Authorization: Bearer KEY`, or Anthropic's `x-api-key: KEY`.
fn presented(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

fn refuse(error: ApiError) -> Response {
    let asks = error.status() == 401;
    let mut response = Refusal(error).into_response();
    if asks {
        let scheme = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;
    use crate::peer::San;

    const TABLE: AccessTable = &[
        ("/open", Access::Open),
        ("/tokens", Access::Needs(Role::Inference)),
        ("/of/{name}", Access::Needs(Role::Metrics)),
    ];

    fn router(keys: &[&str], file: &str) -> Router {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, file).unwrap();
        let given: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let keys = Keys::new(&given, (!file.is_empty()).then_some(path.as_path())).unwrap();
        let mut router = Router::new();
        for path in ["/open", "/tokens", "/of/{name}", "/unlisted"] {
            router = router.route(path, get(|| async { "in" }));
        }
        authorized(router, Arc::new(keys), TABLE, Arc::default())
    }

    async fn status(router: &Router, path: &str, header: Option<(&str, &str)>) -> u16 {
        let mut request = Request::builder().uri(path);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(
            response.headers().contains_key(header::WWW_AUTHENTICATE),
            response.status() == 401
        );
        response.status().as_u16()
    }

    #[tokio::test]
    async fn without_keys_all_is_open() {
        let router = router(&[], "");
        for path in ["/open", "/tokens", "/of/x", "/unlisted"] {
            assert_eq!(status(&router, path, None).await, 200, "{path}");
        }
    }

    #[tokio::test]
    async fn a_route_asks_for_its_role() {
        let router = router(&["general-key"], "metrics metrics-key\nadmin admin-key\n");
        let general = Some(("authorization", "Bearer general-key"));
        let metrics = Some(("Authorization", "bearer metrics-key"));
        let admin = Some(("x-api-key", "admin-key"));
        let table = [
            ("/open", [200, 200, 200, 200, 200]),
            ("/tokens", [401, 401, 200, 403, 403]),
            ("/of/x", [401, 401, 200, 200, 403]),
            ("/unlisted", [401, 401, 403, 403, 200]),
        ];
        for (path, expected) in table {
            let unknown = Some(("authorization", "Bearer no-such-key"));
            for (header, wanted) in [None, unknown, general, metrics, admin]
                .into_iter()
                .zip(expected)
            {
                assert_eq!(
                    status(&router, path, header).await,
                    wanted,
                    "{path} {header:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_certificate_opens_what_its_rules_say_whatever_key_comes_along() {
        let router = router(&["general-key"], "metrics san:DNS:grafana.example\n");
        let peer = |name: &str| Peer {
            address: None,
            names: [San::Dns(name.to_owned())].into(),
        };
        let table = [
            ("grafana.example", "/of/x", None, 200),
            ("grafana.example", "/of/x", Some("EMPTY"), 200),
            ("grafana.example", "/tokens", None, 403),
            ("grafana.example", "/tokens", Some("general-key"), 200),
            ("other.example", "/of/x", None, 401),
            ("other.example", "/open", None, 200),
        ];
        for (name, path, key, wanted) in table {
            let mut request = Request::builder().uri(path).extension(peer(name));
            if let Some(key) = key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            let request = request.body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), wanted, "{name} {path} {key:?}");
        }
    }

    #[tokio::test]
    async fn other_schemes_are_no_key() {
        let router = router(&["general-key"], "");
        for value in ["general-key", "Basic general-key", "Bearer", "Bearer "] {
            assert_eq!(
                status(&router, "/tokens", Some(("authorization", value))).await,
                401
            );
        }
    }
}
