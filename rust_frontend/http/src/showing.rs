//! What an output of a chat or completion shows besides its text.

use std::sync::Arc;

use octavo_render::Prepared;

use crate::app::App;
use crate::logprobs::Told;
use crate::output::{Echo, Extras, Place, TokenIds};
use crate::route::Route;

/// What is asked for.
pub(crate) struct Showing {
    pub(crate) route: Route,
    pub(crate) return_token_ids: bool,
    pub(crate) prompt_logprobs: bool,
    pub(crate) only_prompt: bool,
}

impl Showing {
    pub(crate) fn extras(&self, app: &App, prepared: &Arc<Prepared>, place: Place) -> Extras {
        let renderer = || Arc::clone(&app.renderer);
        let told = prepared
            .wants_logprobs()
            .then(|| app.renderer.logprobs(&prepared.output));
        Extras {
            ids: self
                .return_token_ids
                .then(|| TokenIds::new(prepared.prompt_ids())),
            told: told.map(|text| Told::new(self.route, renderer(), text)),
            echo: prepared.echo.is_some().then(|| Echo {
                prepared: Arc::clone(prepared),
                renderer: renderer(),
                alone: self.only_prompt,
            }),
            of_prompt: (self.prompt_logprobs && place.first).then(renderer),
        }
    }
}
