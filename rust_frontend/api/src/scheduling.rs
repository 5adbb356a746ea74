//! Fields that say when a request is served and whose cached prefixes it may use.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;

/// Longest salt, in bytes: a name or a hash, not a document.
const MAX_SALT: usize = 1024;

/// What both generating routes take; ranges hold already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulingFields {
    /// Lower is served earlier; 0 unless the client said otherwise.
    pub priority: i64,
    /// Requests share cached prefixes only with those of the same salt. Not empty.
    pub cache_salt: Option<String>,
}

impl SchedulingFields {
    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let wanted = "an integer from -2^63 to 2^63-1, lower for earlier";
        Ok(Self {
            priority: field::integer(fields, "priority", i64::MIN, wanted)?.unwrap_or(0),
            cache_salt: cache_salt(fields)?,
        })
    }
}

fn cache_salt(fields: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    let salt = field::string(fields, "cache_salt")?;
    match salt {
        Some(salt) if salt.is_empty() || salt.len() > MAX_SALT => Err(ApiError::invalid(
            "cache_salt",
            format!(
                "'cache_salt' must have from 1 to {MAX_SALT} bytes; got {}. Leave it out to share the cache.",
                salt.len()
            ),
        )),
        _ => Ok(salt),
    }
}
