//! Lines of a stream, no longer than is read.

use std::io::{self, BufRead};

/// What a stream holds next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line that is longer than `limit`; the rest of it was passed over.
    TooLong,
}

/// Reads the next line that is not blank; `None` at the end.
///
/// # Errors
/// The stream's own.
pub(crate) fn next(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    loop {
        match read(input, limit)? {
            Some(Line::Whole(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
            other => return Ok(other),
        }
    }
}

fn read(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let (mut line, mut any, mut long) = (Vec::new(), false, false);
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            break;
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        long |= line.len() + part.len() > limit;
        if long {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let used = end.map_or(buffer.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(match (any, long) {
        (false, _) => None,
        (true, true) => Some(Line::TooLong),
        (true, false) => Some(Line::Whole(line)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn long_lines_are_passed_over_and_blank_ones_too() {
        let text = b"one\n\n  \r\nfar too long\ntwo\xff\nlast";
        for capacity in [1, 3, 64] {
            let mut input = BufReader::with_capacity(capacity, text.as_slice());
            let mut lines = Vec::new();
            while let Some(line) = next(&mut input, 6).unwrap() {
                lines.push(line);
            }
            let whole = |text: &[u8]| Line::Whole(text.to_vec());
            assert_eq!(
                lines,
                [
                    whole(b"one"),
                    Line::TooLong,
                    whole(b"two\xff"),
                    whole(b"last")
                ]
            );
        }
    }
}
