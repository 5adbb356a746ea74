//! Where calls begin in free text.

use super::GuidedTool;
use crate::constraint::error::ConstraintError;
use crate::format::Format;
use crate::render::Render;
use crate::state::Kind;

/// A shorter beginning than this stands in ordinary text.
const LEAST: usize = 4;

/// The texts behind which calls are forced.
#[derive(Debug)]
pub(super) struct Triggers {
    /// One for all tools, or one for each in the tools' order.
    texts: Vec<String>,
    /// Other texts that would begin a call: they must not stand in the text.
    others: Vec<String>,
}

impl Triggers {
    /// Find them.
    ///
    /// # Errors
    /// A format whose calls have no beginning that ordinary text does not have.
    pub(super) fn of(
        format: &Format,
        render: &Render,
        tools: &[GuidedTool<'_>],
    ) -> Result<Self, ConstraintError> {
        let whole = render.trigger();
        let markers = markers(format);
        let best = markers
            .iter()
            .filter(|marker| whole.starts_with(marker.as_str()))
            .max_by_key(|marker| marker.len())
            .cloned();
        let one = best.or_else(|| (whole.trim().len() >= LEAST).then(|| whole.clone()));
        let texts: Vec<String> = match one {
            Some(text) => vec![text],
            None => tools
                .iter()
                .filter_map(|tool| render.shape(tool.name, 0))
                .map(|shape| format!("{}{}", shape.open, shape.begin))
                .collect(),
        };
        if texts.is_empty() || texts.iter().any(|text| text.trim().len() < LEAST) {
            let message = "strict tools are not supported with this output format, whose calls have no mark of their own; \
                           leave strict out, or choose a tool";
            return Err(ConstraintError::whole(message));
        }
        let apart = |marker: &String| {
            texts.iter().all(|text| {
                !text.starts_with(marker.as_str()) && !marker.starts_with(text.as_str())
            })
        };
        let others = markers.into_iter().filter(apart).collect();
        Ok(Self { texts, others })
    }

    /// All texts that free text does not hold.
    pub(super) fn all(&self) -> Vec<String> {
        self.texts.iter().chain(&self.others).cloned().collect()
    }

    /// Each trigger with the tools that it may begin a call of.
    pub(super) fn callable<'t>(
        &self,
        tools: &[GuidedTool<'t>],
    ) -> Vec<(String, Vec<GuidedTool<'t>>)> {
        match self.texts.as_slice() {
            [one] => vec![(one.clone(), tools.to_vec())],
            several => several
                .iter()
                .cloned()
                .zip(tools.iter().map(|tool| vec![*tool]))
                .collect(),
        }
    }
}

/// The markers that lead from the answer into a call.
pub(super) fn markers(format: &Format) -> Vec<String> {
    let Some(content) = format.states.get("content") else {
        return Vec::new();
    };
    let leads = content.on.iter().filter(|(_, to)| {
        let (to, keep) = to.parts();
        format
            .states
            .get(to)
            .is_some_and(|state| state.kind.is_call() && !(keep && state.kind == Kind::Args))
    });
    leads
        .filter_map(|(marker, _)| format.markers.get(marker))
        .flat_map(|marker| marker.texts().0.iter().cloned())
        .collect()
}
