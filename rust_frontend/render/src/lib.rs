//! Requests to prompt tokens and sampling parameters; tokens back to text. Synchronous: callers choose the thread.
//!
//! [`Renderer`] is made once from a model folder and shared. [`Renderer::chat`] and [`Renderer::completion`] give a
//! [`Prepared`] request: what the engine gets, and what [`Renderer::output`] needs to turn the engine's tokens into text.

mod check;
mod completion;
mod conversation;
mod defaults;
mod embeds;
mod extras;
mod feed;
mod form;
mod format;
mod guide;
mod limits;
mod logprobs;
mod output;
mod parsers;
mod pooled;
mod prepared;
mod prompts;
mod rendered;
mod renderer;
mod seeds;
mod stop;
mod truncate;
mod vocabulary;

pub use extras::few_enough;
pub use logprobs::{LogprobText, TokenLogprobs, completion_logprobs, prompt_logprobs};
pub use octavo_template::{
    ChatTemplate, Clock, Conversation, NativeFormat, RenderError as TemplateError, Rendered,
};
pub use output::{Ended, OutputText, Update};
pub use parsers::ParserSettings;
pub use pooled::{PooledPrompt, Reading};
pub use prepared::{GivenPrompt, Limits, OutputPlan, Prepared};
pub use rendered::{RenderedPrompt, Wanted};
pub use renderer::{LoadError, Renderer};
pub use vocabulary::vocabulary;
