//! Chat templates: Jinja as Transformers sets it up, on minijinja.
//!
//! [`TemplateSet`] finds a model's templates, [`ChatTemplate`] compiles one and renders conversations with it. A template
//! is a program that came with a model: its work and its output are bounded, and it reaches nothing but its variables.
//! Where Python and minijinja differ, this crate follows Python (see `filters`, `methods`, `json`, `repr`, `tags`); a
//! construct that it cannot follow is refused by name when the template is compiled.

mod chat;
mod clock;
mod continuation;
mod environment;
mod error;
mod filters;
mod growing;
mod json;
mod methods;
mod names;
mod native;
mod number;
mod operators;
mod printf;
mod repr;
mod source;
mod spans;
mod syntax;
mod tags;
mod value;

pub use chat::{ChatTemplate, Conversation};
pub use clock::Clock;
pub use error::{LoadError, RenderError};
pub use native::{NativeFormat, Piece, text_of};
pub use source::TemplateSet;
pub use spans::Rendered;
