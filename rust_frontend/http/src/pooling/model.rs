//! What a model that gives vectors is asked for.

use std::collections::BTreeMap;

use octavo_api::ApiError;
use octavo_render::Reading;
use serde::Deserialize;

use crate::app::App;

/// How the server's model pools, as the supervisor has worked it out (`octavo.wire.pooling_plan`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PoolingModel {
    /// "embed", "classify", "`token_embed`", "`token_classify`": those that it does, the default of `/pooling` first.
    pub tasks: Vec<String>,
    /// Numbers of an embedding; 0 where it gives labels.
    #[serde(default)]
    pub embedding_size: u32,
    /// Numbers that are given where a request does not say; `None`: all.
    #[serde(default)]
    pub dimensions: Option<u32>,
    /// Whether requests may ask for fewer.
    #[serde(default)]
    pub matryoshka: bool,
    /// Of these sizes; empty: any.
    #[serde(default)]
    pub matryoshka_dimensions: Vec<u32>,
    /// Of a classifier.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Whether texts are made lower case first.
    #[serde(default)]
    pub lower_case: bool,
    /// Whether the tokenizer joins pairs; otherwise they are one text.
    #[serde(default)]
    pub pairs: bool,
    /// What stands in front of texts of a kind ("query", "document").
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
}

/// How the model pools.
///
/// # Errors
/// 400 where it makes tokens.
pub(super) fn of(app: &App) -> Result<&PoolingModel, ApiError> {
    app.pooling.as_ref().ok_or_else(|| {
        let message = "This model makes tokens, not vectors. Ask a server for this that was started with --runner pooling.";
        ApiError::unsupported("model", message)
    })
}

impl PoolingModel {
    /// Whether the model does a task.
    pub(super) fn has(&self, task: &str) -> bool {
        self.tasks.iter().any(|name| name == task)
    }

    /// Refuses a task that the model does not do.
    ///
    /// # Errors
    /// 400.
    pub(super) fn does(&self, task: &str) -> Result<(), ApiError> {
        if self.has(task) {
            return Ok(());
        }
        let message = format!(
            "This needs a model that does the task \"{task}\"; this one does {}.",
            self.tasks.join(", ")
        );
        Err(ApiError::unsupported("model", message))
    }

    /// The task of a request that may name one.
    ///
    /// # Errors
    /// 400 for another than the model's.
    pub(super) fn task(&self, asked: Option<String>) -> Result<String, ApiError> {
        match asked {
            Some(task) if self.has(&task) => Ok(task),
            Some(task) => {
                let shown: String = task.chars().take(60).collect();
                let message = format!(
                    "'task' must be one of {}; got {shown:?}.",
                    self.tasks.join(", ")
                );
                Err(ApiError::invalid("task", message))
            }
            None => Ok(self.tasks.first().cloned().unwrap_or_default()),
        }
    }

    /// The numbers of an embedding that are asked for; 0: all. `name` is the request's field.
    ///
    /// # Errors
    /// 400: a model that cannot be cut, or not so.
    pub(super) fn cut(&self, asked: Option<u32>, name: &str) -> Result<u32, ApiError> {
        let Some(asked) = asked else {
            return Ok(self.dimensions.unwrap_or(0));
        };
        let refused = |message: String| Err(ApiError::invalid(name, message));
        if self.embedding_size == 0 {
            return refused(format!(
                "'{name}' is for embeddings, and this model gives labels."
            ));
        }
        if asked == 0 || asked > self.embedding_size {
            return refused(format!(
                "'{name}' must be from 1 to {}, the numbers of this model's embeddings; got {asked}.",
                self.embedding_size
            ));
        }
        if asked == self.embedding_size {
            return Ok(0);
        }
        if !self.matryoshka {
            return refused(format!(
                "'{name}' is {asked}, and this model's embeddings cannot be cut: its config.json names no \
                 matryoshka_dimensions. Leave it out."
            ));
        }
        let sizes = &self.matryoshka_dimensions;
        if !sizes.is_empty() && !sizes.contains(&asked) {
            let known: Vec<String> = sizes.iter().map(u32::to_string).collect();
            return refused(format!(
                "'{name}' must be one of {} for this model; got {asked}.",
                known.join(", ")
            ));
        }
        Ok(asked)
    }

    /// How the model reads texts.
    pub(super) fn reading(&self) -> Reading<'_> {
        Reading {
            lower_case: self.lower_case,
            pairs: self.pairs,
            ..Reading::default()
        }
    }

    /// Whether the model reads two texts at once and gives one value.
    pub(super) fn is_cross_encoder(&self) -> bool {
        self.has("classify") && self.labels.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(json: &str) -> PoolingModel {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn dimensions_are_held_against_the_model() {
        let plain = model(r#"{"tasks": ["token_embed", "embed"], "embedding_size": 16}"#);
        assert_eq!(plain.cut(None, "dimensions"), Ok(0));
        assert_eq!(plain.cut(Some(16), "dimensions"), Ok(0));
        for asked in [0, 8, 17] {
            let error = plain.cut(Some(asked), "dimensions").unwrap_err();
            assert_eq!(
                (error.status(), error.param.as_deref()),
                (400, Some("dimensions"))
            );
        }
        let nested = PoolingModel {
            matryoshka: true,
            dimensions: Some(12),
            ..plain
        };
        assert_eq!(nested.cut(None, "dimensions"), Ok(12));
        assert_eq!(nested.cut(Some(8), "dimensions"), Ok(8));
        let some = PoolingModel {
            matryoshka_dimensions: vec![4, 16],
            ..nested
        };
        assert_eq!(some.cut(Some(4), "dimensions"), Ok(4));
        let error = some.cut(Some(8), "dimensions").unwrap_err();
        assert!(error.message.contains("4, 16"), "{error}");
    }

    #[test]
    fn other_tasks_are_refused() {
        let labels = model(r#"{"tasks": ["classify"], "labels": ["a"], "pairs": true}"#);
        assert!(labels.is_cross_encoder() && labels.reading().pairs);
        assert_eq!(labels.does("embed").unwrap_err().status(), 400);
        assert_eq!(labels.task(None), Ok("classify".to_owned()));
        let error = labels.task(Some("embed".to_owned())).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("task"));
        assert!(labels.cut(Some(1), "dimensions").is_err());
    }
}
