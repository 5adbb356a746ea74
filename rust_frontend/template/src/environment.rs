//! The Jinja environment of Transformers.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::clock::Clock;
use crate::error::{LoadError, describe};
use crate::{filters, methods, names, operators, repr, tags};

/// Steps a template may take for one conversation: a second's work. 1,200 messages of 600 kB take 0.3 to 3 million,
/// depending on the template.
const FUEL: u64 = 20_000_000;

/// How deep macros and includes may nest.
const RECURSION: usize = 200;

/// The name under which an environment holds its template.
pub(crate) const TEMPLATE: &str = "chat";

/// Compiles a template; `name` is for messages. Also returns what it uses and nobody defines: branches that reach it fail.
pub(crate) fn compile(
    name: &str,
    source: &str,
    clock: Clock,
) -> Result<(Environment<'static>, Vec<String>), LoadError> {
    let failure = |reason: String| LoadError::Syntax {
        name: name.to_owned(),
        reason,
    };
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    env.set_syntax(syntax.map_err(|error| failure(describe(&error)))?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(methods::call);
    env.set_recursion_limit(RECURSION);
    env.set_fuel(Some(FUEL));
    env.set_formatter(|out, state, value| {
        if value.kind() == ValueKind::String {
            return minijinja::escape_formatter(out, state, value);
        }
        let mut text = String::new();
        repr::str(&mut text, value);
        out.write_str(&text).map_err(Error::from)
    });
    filters::install(&mut env);
    env.add_function("raise_exception", |message: &Value| {
        filters::raise_exception(message)
    });
    env.add_function("strftime_now", move |format: &str| {
        clock
            .format(format)
            .map_err(|reason| Error::new(ErrorKind::InvalidOperation, reason))
    });
    operators::install(&mut env);
    let source = tags::rewrite(source);
    let found = names::check(&env, &source).map_err(failure)?;
    let (source, unknown) = (operators::rewrite(&source, &found.calls), found.unknown);
    env.add_template_owned(TEMPLATE, source)
        .map_err(|error| failure(describe(&error)))?;
    Ok((env, unknown))
}
