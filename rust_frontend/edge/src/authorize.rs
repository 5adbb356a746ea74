//! Asks for a key before a route is reached.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use octavo_api::ApiError;
use sha2::{Digest as _, Sha256};

use crate::keys::Keys;
use crate::refusal::Refusal;
use crate::roles::Role;

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
}

/// Puts the keys in front of all routes of the router, if any are configured.
pub fn authorized(router: Router, keys: Arc<Keys>, table: AccessTable) -> Router {
    if !keys.required() {
        return router;
    }
    router.layer(from_fn_with_state(Door { keys, table }, ask))
}

/// Whose request it is: a digest of the key that came with it, or nothing where no key is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller(Vec<u8>);

impl Caller {
    /// The bytes by which callers differ.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A caller that was kept.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_owned())
    }
}

async fn ask(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    if let Some(key) = presented(request.headers()) {
        let caller = Caller(Sha256::digest(key.as_bytes()).to_vec());
        request.extensions_mut().insert(caller);
    }
    match check(&door, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(error),
    }
}

fn check(door: &Door, request: &Request) -> Result<(), ApiError> {
    let path = request.extensions().get::<MatchedPath>();
    let access = path.and_then(|path| {
        let listed = door.table.iter().find(|(known, _)| *known == path.as_str());
        listed.map(|(_, access)| *access)
    });
    let role = match access.unwrap_or(Access::Needs(Role::Admin)) {
        Access::Open => return Ok(()),
        Access::Needs(role) => role,
    };
    let key = presented(request.headers()).ok_or_else(|| {
        ApiError::unauthenticated(
            "No API key was sent. Send one in the header Authorization: Bearer KEY.",
        )
    })?;
    let roles = door.keys.roles(key).ok_or_else(|| {
        ApiError::unauthenticated("The API key is not known to this server. Check it.")
    })?;
    if roles.has(role) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!(
        "The API key is known, but it lacks the role {} that this route asks for.",
        role.name()
    )))
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
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

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
        authorized(router, Arc::new(keys), TABLE)
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
