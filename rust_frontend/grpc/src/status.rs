//! Errors as gRPC tells them: a code, a message, and details that programs can read.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use octavo_api::{ApiError, ErrorKind};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Says whose `reason` it is in an ErrorInfo.
const DOMAIN: &str = "octavo";

/// Clients take so many bytes of metadata or few more; the message comes in it up to three times.
const MESSAGE_BYTES: usize = 1200;

/// The error as a status.
pub(crate) fn status(error: &ApiError) -> Status {
    let message = shortened(&error.message);
    let mut details = ErrorDetails::new();
    details.set_error_info(error.code, DOMAIN, HashMap::new());
    if let Some(param) = &error.param {
        details.add_bad_request_violation(param, message.as_str());
    }
    if let Some(seconds) = error.retry_after_s {
        details.set_retry_info(Some(Duration::from_secs(seconds.into())));
    }
    Status::with_error_details(code(error.kind), message, details)
}

fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidRequest => Code::InvalidArgument,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::TooLarge | ErrorKind::Overloaded => Code::ResourceExhausted,
        ErrorKind::Internal => Code::Internal,
        ErrorKind::MethodNotAllowed | ErrorKind::NotImplemented => Code::Unimplemented,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
    }
}

/// The beginning of a message that is too long.
pub(crate) fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MESSAGE_BYTES);
    format!("{}…", &message[..end])
}

/// Gives refusals that arose outside of a call the shape that gRPC's clients read.
pub(crate) async fn shaped(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else {
        return response;
    };
    let status = match error.kind {
        // A path that is no call.
        ErrorKind::NotFound => Status::unimplemented(shortened(&error.message)),
        _ => status(&error),
    };
    let mut answer: Response = status.into_http();
    if let Some(id) = response.headers_mut().remove("x-request-id") {
        answer.headers_mut().insert("x-request-id", id);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_name_the_field_the_code_and_when_to_come_back() {
        let told = status(&ApiError::invalid("sampling_params.n", "'n' is wrong"));
        assert_eq!(
            (told.code(), told.message()),
            (Code::InvalidArgument, "'n' is wrong")
        );
        let details = told.get_error_details();
        let violation = &details.bad_request().unwrap().field_violations[0];
        assert_eq!(violation.field, "sampling_params.n");
        let info = details.error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            ("invalid_value", "octavo")
        );
        let told = status(&ApiError::overloaded("full", 3));
        assert_eq!(told.code(), Code::ResourceExhausted);
        let delay = told.get_error_details().retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(Duration::from_secs(3)));
    }

    #[test]
    fn long_messages_fit_into_metadata() {
        let told = status(&ApiError::invalid("text", "é".repeat(5000)));
        assert!(told.message().len() <= MESSAGE_BYTES + 3);
        assert!(told.details().len() < 4 << 10);
    }
}
