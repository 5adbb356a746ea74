//! Items that a request names by their ids: what was said in responses that were kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use octavo_api::{ApiError, referenced};
use octavo_edge::Caller;
use serde_json::Value;

use super::Responses;
use super::store::Record;

/// Most references of a request.
const MAX_REFERENCES: usize = 1024;
/// Hexadecimal digits of a response's id, which the ids of its items hold.
const DIGITS: usize = 32;

/// The id of an item of a request: the number of its place tells it from items of the answer.
pub(super) fn input_id(prefix: &str, response: &str, index: usize) -> String {
    format!(
        "{prefix}_{}i{index:x}",
        response.trim_start_matches("resp_")
    )
}

/// Puts the items that are named by id in place of their references.
///
/// # Errors
/// 400: an item that is not there for this caller, or of a response that still runs; too many references.
pub(super) async fn resolve(
    responses: &Responses,
    input: &mut [Value],
    caller: &Caller,
) -> Result<(), ApiError> {
    let places: Vec<usize> = (0..input.len())
        .filter(|&at| referenced(&input[at]).is_some())
        .collect();
    if places.len() > MAX_REFERENCES {
        let message = format!(
            "'input' may hold {MAX_REFERENCES} items of type \"item_reference\"; got {}.",
            places.len()
        );
        return Err(ApiError::invalid("input", message));
    }
    let mut records: HashMap<String, Option<Record>> = HashMap::new();
    for at in places {
        let id = referenced(&input[at]).unwrap_or_default().to_owned();
        let response = response_of(&id);
        if let Entry::Vacant(place) = records.entry(response.clone()) {
            let found = responses.find(place.key(), caller).await?;
            place.insert(found.filter(|record| record.object.status.ended()));
        }
        let record = records.get(&response).and_then(Option::as_ref);
        input[at] = record
            .and_then(|record| item(record, &id))
            .ok_or_else(|| missing(at, &id))?;
    }
    Ok(())
}

/// The id of the response that an item belongs to.
fn response_of(item: &str) -> String {
    let rest = item.split_once('_').map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take(DIGITS).collect();
    format!("resp_{digits}")
}

fn item(record: &Record, id: &str) -> Option<Value> {
    let said = record.object.output.iter().find(|item| item.id() == id);
    match said {
        Some(item) => serde_json::to_value(item).ok(),
        None => record.input.iter().find(|item| item["id"] == id).cloned(),
    }
}

fn missing(at: usize, id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    let message = format!(
        "'input.{at}.id': there is no item {shown:?}: its response was not stored, still runs, is too old, or belongs \
         to another key. Send the item itself."
    );
    ApiError {
        code: "item_not_found",
        ..ApiError::invalid(format!("input.{at}.id"), message)
    }
}
