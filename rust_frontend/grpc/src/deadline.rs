//! The time that a client gives a call.

use std::future::Future;
use std::time::Duration;

use octavo_api::ApiError;
use tonic::metadata::MetadataMap;

/// Names the time in the metadata.
const HEADER: &str = "grpc-timeout";

/// Longest number that gRPC allows, in digits.
const DIGITS: usize = 8;

/// Reads how long the call may take; `None`: as long as it takes.
///
/// # Errors
/// 400 for a text that is no time.
pub(crate) fn deadline(metadata: &MetadataMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = metadata.get(HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    parse(text).map(Some).ok_or_else(|| {
        let message = format!("The metadata {HEADER} must be a number of up to {DIGITS} digits and a unit (H, M, S, m, u, n); got {text:?}.");
        ApiError::invalid(HEADER, message)
    })
}

fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let digits = &text[..at];
    if digits.len() > DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Waits for an answer no longer than the client does.
///
/// # Errors
/// The answer's, or 504.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let Some(limit) = limit else {
        return answer.await;
    };
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(ApiError::timed_out(limit.as_secs_f64())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        for (text, expected) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3000)),
            ("45m", Some(45)),
            ("9000u", Some(9)),
            ("99999999n", Some(99)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("123456789S", None),
            ("1é", None),
        ] {
            let millis = parse(text).map(|time| time.as_millis());
            assert_eq!(millis, expected, "{text:?}");
        }
    }
}
