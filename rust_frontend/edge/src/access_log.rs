//! One line of JSON for each request, when its answer is complete or its client gone. Never what was said.

use std::time::Instant;

use serde_json::json;

use crate::caller::Caller;
use crate::held::Watch;
use crate::peer::Peer;
use crate::request_id::RequestId;
use crate::settings::unix_seconds;

/// A request as the log tells of it.
#[derive(Debug)]
pub(crate) struct Entry {
    id: RequestId,
    method: &'static str,
    /// As it stands in the router: paths are the client's words.
    route: String,
    client: Option<String>,
    trace: Option<String>,
    began: Instant,
    status: u16,
    caller: Option<Caller>,
    bytes: u64,
    complete: bool,
}

impl Entry {
    pub(crate) fn new(
        id: RequestId,
        method: &'static str,
        route: String,
        peer: Option<&Peer>,
    ) -> Self {
        Self {
            method,
            route,
            client: peer
                .and_then(|peer| peer.address)
                .map(|at| at.ip().to_string()),
            trace: id
                .parent()
                .map(|parent| format!("{:032x}", parent.trace_id)),
            id,
            began: Instant::now(),
            status: 0,
            caller: None,
            bytes: 0,
            complete: false,
        }
    }

    /// Takes over what the answer's head says.
    pub(crate) fn answered(&mut self, status: u16, caller: Option<Caller>) {
        self.status = status;
        self.caller = caller;
    }

    fn line(&self) -> String {
        json!({
            "time": unix_seconds(),
            "id": self.id.as_str(),
            "client": self.client,
            "caller": self.caller.as_ref().map(ToString::to_string),
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "bytes": self.bytes,
            "seconds": (self.began.elapsed().as_secs_f64() * 1e6).round() / 1e6,
            "complete": self.complete,
            "trace": self.trace,
        })
        .to_string()
    }
}

impl Watch for Entry {
    fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    fn ended(&mut self) {
        self.complete = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        tracing::info!("access {}", self.line());
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn a_line_says_who_and_how_long_and_not_what() {
        let mut headers = HeaderMap::new();
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert("traceparent", HeaderValue::from_static(trace));
        headers.insert(
            "authorization",
            HeaderValue::from_static("Bearer secret-key"),
        );
        let id = RequestId::of(&headers);
        let peer = Peer {
            address: Some(([127, 0, 0, 1], 9).into()),
            names: [].into(),
        };
        let mut entry = Entry::new(id, "POST", "/v1/x".to_owned(), Some(&peer));
        entry.answered(200, Some(Caller::of_key("secret-key")));
        entry.wrote(5);
        entry.ended();
        let line: serde_json::Value = serde_json::from_str(&entry.line()).unwrap();
        assert_eq!(line["trace"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (&line["bytes"], &line["complete"]),
            (&json!(5), &json!(true))
        );
        assert_eq!(line["client"], "127.0.0.1");
        assert!(
            line["caller"]
                .as_str()
                .is_some_and(|text| text.starts_with("key:"))
        );
        assert!(!entry.line().contains("secret"));
    }

    #[test]
    fn a_trace_that_is_none_is_not_repeated() {
        for text in ["", "00", "00-xyz-1-01", "00-0af7-b7ad-01"] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_static(text));
            assert_eq!(RequestId::of(&headers).parent(), None, "{text}");
        }
    }
}
