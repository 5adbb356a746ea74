//! What clients are told when tokens do not come.

use octavo_api::ApiError;
use octavo_engine::GenerateError;

/// The engine's error as the client reads it.
pub(crate) fn of_generate(error: GenerateError) -> ApiError {
    match error {
        GenerateError::Rejected {
            code,
            message,
            param,
        } => ApiError::rejected(&code, message, param),
        GenerateError::Unavailable {
            message,
            retry_after_s,
        } => ApiError::unavailable(message, retry_after_s),
        GenerateError::Overloaded {
            message,
            retry_after_s,
        } => ApiError::overloaded(message, retry_after_s),
        GenerateError::Conflict { message } => ApiError::conflict(message),
        GenerateError::Unsupported { message } => ApiError::not_implemented(message),
        GenerateError::Failed { message } => ApiError::internal(message),
    }
}
