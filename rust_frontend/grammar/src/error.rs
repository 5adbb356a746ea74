//! What may be wrong with a format file.

/// A format file that cannot be used: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {message}")]
pub struct FormatError {
    /// The file's name as given by the caller.
    pub file: String,
    /// The line of the key, from 1; 1 where the file as a whole is meant.
    pub line: usize,
    /// The dotted path of the key.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Return the line (from 1) of the byte at `offset`.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// Return the line of the key at `path`, or of the deepest part of it that the text holds.
pub(crate) fn line_of(text: &str, path: &[&str]) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else {
        return 1;
    };
    let mut table = document.get_ref();
    let mut line = 1;
    for part in path {
        let Some((key, value)) = table.get_key_value(*part) else {
            return line;
        };
        line = line_at(text, key.span().start);
        match value.get_ref().as_table() {
            Some(inner) => table = inner,
            None => return line,
        }
    }
    line
}
