//! Fields that say when a request is served and whose cached prefixes it may use.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;

/// Longest salt, in bytes: a name or a hash, not a document.
const MAX_SALT: usize = 1024;

/// Longest name of a session, in bytes.
const MAX_SESSION: usize = 256;

/// What both generating routes take; ranges hold already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulingFields {
    /// Lower is served earlier; 0 unless the client said otherwise.
    pub priority: i64,
    /// Requests share cached prefixes only with those of the same salt. Not empty.
    pub cache_salt: Option<String>,
    /// The data-parallel rank that must serve the request; `None`: any.
    pub rank: Option<u32>,
    /// Requests of one session are best served by the engine that has their prefixes. Not empty.
    pub session_id: Option<String>,
}

impl SchedulingFields {
    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let wanted = "an integer from -2^63 to 2^63-1, lower for earlier";
        Ok(Self {
            priority: field::integer(fields, "priority", i64::MIN, wanted)?.unwrap_or(0),
            cache_salt: bounded(fields, "cache_salt", MAX_SALT, " to share the cache")?,
            session_id: bounded(fields, "session_id", MAX_SESSION, "")?,
            rank: rank(fields)?,
        })
    }

    /// Lets the header `X-data-parallel-rank`, where it is there, go before the field.
    ///
    /// # Errors
    /// A header that is no rank.
    pub fn pin(&mut self, header: Option<&[u8]>) -> Result<(), ApiError> {
        let Some(header) = header else { return Ok(()) };
        let text = std::str::from_utf8(header).ok();
        let Some(rank) = text.and_then(|text| text.trim().parse().ok()) else {
            let message = format!(
                "The header 'X-data-parallel-rank' must be an integer from 0 on; got {:?}. Leave it out to let the server \
                 choose.",
                String::from_utf8_lossy(header)
            );
            return Err(ApiError::invalid("X-data-parallel-rank", message));
        };
        self.rank = Some(rank);
        Ok(())
    }

    /// Lets the header `X-Session-ID`, where it is there, go before the field.
    ///
    /// # Errors
    /// A header that names no session.
    pub fn join(&mut self, header: Option<&[u8]>) -> Result<(), ApiError> {
        let Some(header) = header else { return Ok(()) };
        let name = std::str::from_utf8(header).ok();
        let Some(name) = name.filter(|name| (1..=MAX_SESSION).contains(&name.len())) else {
            let message = format!(
                "The header 'X-Session-ID' must be a text of 1 to {MAX_SESSION} bytes; got {}. Leave it out.",
                header.len()
            );
            return Err(ApiError::invalid("X-Session-ID", message));
        };
        self.session_id = Some(name.to_owned());
        Ok(())
    }

    /// Lets the header `X-Vllm-Priority`, where it is there, go before the field.
    ///
    /// # Errors
    /// A header that is no priority.
    pub fn prefer(&mut self, header: Option<&[u8]>) -> Result<(), ApiError> {
        let Some(header) = header else { return Ok(()) };
        let text = std::str::from_utf8(header).ok();
        let Some(priority) = text.and_then(|text| text.trim().parse().ok()) else {
            let message = format!(
                "The header 'X-Vllm-Priority' must be an integer from -2^63 to 2^63-1, lower for earlier; got {:?}.",
                String::from_utf8_lossy(header)
            );
            return Err(ApiError::invalid("X-Vllm-Priority", message));
        };
        self.priority = priority;
        Ok(())
    }
}

fn rank(fields: &mut Map<String, Value>) -> Result<Option<u32>, ApiError> {
    let wanted = "an integer from 0 to 2^32-1, the rank of an engine core";
    let rank: Option<i64> = field::integer(fields, "data_parallel_rank", 0, wanted)?;
    rank.map(|rank| {
        u32::try_from(rank).map_err(|_| {
            ApiError::invalid(
                "data_parallel_rank",
                format!("'data_parallel_rank' must be {wanted}; got {rank}."),
            )
        })
    })
    .transpose()
}

/// A text that is not empty and not too long.
fn bounded(
    fields: &mut Map<String, Value>,
    name: &str,
    most: usize,
    why: &str,
) -> Result<Option<String>, ApiError> {
    let text = field::string(fields, name)?;
    match text {
        Some(text) if text.is_empty() || text.len() > most => Err(ApiError::invalid(
            name,
            format!(
                "'{name}' must have from 1 to {most} bytes; got {}. Leave it out{why}.",
                text.len()
            ),
        )),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_before_fields_and_are_refused_by_name() {
        let mut fields = SchedulingFields {
            priority: 1,
            session_id: Some("a".to_owned()),
            rank: Some(1),
            ..SchedulingFields::default()
        };
        let kept = fields.clone();
        fields.pin(None).unwrap();
        fields.join(None).unwrap();
        fields.prefer(None).unwrap();
        assert_eq!(fields, kept);
        fields.pin(Some(b" 2 ")).unwrap();
        fields.join(Some(b"b")).unwrap();
        fields.prefer(Some(b"-3")).unwrap();
        let told = (fields.rank, fields.session_id.as_deref(), fields.priority);
        assert_eq!(told, (Some(2), Some("b"), -3));
        let long = [b'x'; MAX_SESSION + 1];
        for wrong in [&b""[..], b"\xff", &long] {
            let refused = [
                fields.pin(Some(wrong)),
                fields.join(Some(wrong)),
                fields.prefer(Some(wrong)),
            ];
            let names = refused.map(|refused| refused.unwrap_err().param.unwrap());
            assert_eq!(
                names,
                ["X-data-parallel-rank", "X-Session-ID", "X-Vllm-Priority"]
            );
        }
    }
}
