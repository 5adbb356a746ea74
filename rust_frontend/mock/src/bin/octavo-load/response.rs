//! A response as it comes, read no closer than must be.

/// Bytes of the body's end that are kept: the usage and `[DONE]` are there.
const TAIL: usize = 1024;
/// Longest head.
const MAX_HEAD: usize = 64 << 10;

/// A response that is being read.
#[derive(Debug, Default)]
pub(crate) struct Response {
    state: State,
    /// What of the head, or of a chunk's size line, has come.
    line: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    newlines: u64,
    tail: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// Of a body without chunks: so many bytes are missing.
    Plain(u64),
    Size,
    /// Of a chunk, so many bytes are missing, its line end included.
    Chunk(u64),
    /// The last chunk has come; its line end is missing.
    Last,
    Done,
}

impl Response {
    /// Whether all of it has come.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Events of the stream so far, those without tokens included. Each ends with an empty line, and JSON has none.
    pub(crate) fn events(&self) -> u64 {
        self.newlines / 2
    }

    /// The tokens that the answer's usage counts; `None` if it has none.
    pub(crate) fn tokens(&self) -> Option<u64> {
        let tail = String::from_utf8_lossy(&self.tail);
        let (_, rest) = tail.rsplit_once("\"completion_tokens\":")?;
        let digits = rest.trim_start();
        let end = digits
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(digits.len());
        digits[..end].parse().ok()
    }

    /// The end of the body, for errors.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }

    /// Takes in what came.
    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<(), String> {
        while !input.is_empty() {
            input = match self.state {
                State::Head => self.head(input)?,
                State::Size => self.size(input)?,
                State::Plain(missing) => {
                    let (now, rest) = split(input, missing);
                    self.payload(now);
                    self.state = match missing - now.len() as u64 {
                        0 => State::Done,
                        missing => State::Plain(missing),
                    };
                    rest
                }
                State::Chunk(missing) => {
                    let (now, rest) = split(input, missing);
                    // The last two bytes end the line.
                    let (payload, _) = split(now, missing.saturating_sub(2));
                    self.payload(payload);
                    self.state = match missing - now.len() as u64 {
                        0 => State::Size,
                        missing => State::Chunk(missing),
                    };
                    rest
                }
                State::Last => {
                    let (now, rest) = split(input, 2 - self.line.len() as u64);
                    self.line.extend_from_slice(now);
                    if self.line.len() == 2 {
                        self.state = State::Done;
                    }
                    rest
                }
                State::Done => return Err("more came than the response".to_owned()),
            };
        }
        Ok(())
    }

    fn head<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], String> {
        let before = self.line.len();
        self.line.extend_from_slice(input);
        let Some(end) = self.line.windows(4).position(|part| part == b"\r\n\r\n") else {
            return if self.line.len() > MAX_HEAD {
                Err("the head has no end".to_owned())
            } else {
                Ok(&[])
            };
        };
        let head = String::from_utf8_lossy(&self.line[..end]).to_ascii_lowercase();
        self.line.clear();
        self.status = head
            .split_whitespace()
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| format!("no HTTP: {head:?}"))?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        self.state = match field("content-length:").map(|text| text.trim().parse::<u64>()) {
            Some(Ok(0)) => State::Done,
            Some(Ok(length)) => State::Plain(length),
            _ if field("transfer-encoding:").is_some() => State::Size,
            _ => return Err("a response without a length".to_owned()),
        };
        Ok(input.get(end + 4 - before..).unwrap_or_default())
    }

    fn size<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], String> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(input);
            return Ok(&[]);
        };
        self.line.extend_from_slice(&input[..end]);
        let text = String::from_utf8_lossy(&self.line);
        let size = u64::from_str_radix(text.trim(), 16)
            .map_err(|_| format!("{text:?} is no size of a chunk"))?;
        self.line.clear();
        self.state = if size == 0 {
            State::Last
        } else {
            State::Chunk(size.saturating_add(2))
        };
        Ok(&input[end + 1..])
    }

    fn payload(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.newlines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if self.tail.len() + bytes.len() > 2 * TAIL {
            let keep = self.tail.len().min(TAIL);
            self.tail.drain(..self.tail.len() - keep);
        }
        let from = bytes.len().saturating_sub(TAIL);
        self.tail.extend_from_slice(&bytes[from..]);
    }
}

fn split(input: &[u8], at: u64) -> (&[u8], &[u8]) {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    input.split_at(at.min(input.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        18\r\ndata: a\n\ndata: {\"b\":1}\n\n\r\n\
        32\r\ndata: {\"usage\":{\"completion_tokens\":7,\"x\":[12]}}\n\n\r\n0\r\n\r\n";

    #[test]
    fn a_stream_is_read_in_pieces_of_any_size() {
        for size in 1..STREAM.len() {
            let mut response = Response::default();
            for piece in STREAM.chunks(size) {
                assert!(!response.is_done());
                response.feed(piece).unwrap();
            }
            assert!(response.is_done(), "pieces of {size}");
            assert_eq!((response.status, response.events()), (200, 3));
            assert_eq!(response.tokens(), Some(7));
            assert_eq!(response.bytes, 0x18 + 0x32);
        }
    }

    #[test]
    fn a_plain_answer_is_read() {
        let mut response = Response::default();
        response
            .feed(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy")
            .unwrap();
        assert!(response.is_done());
        assert_eq!((response.status, response.tail().as_str()), (429, "busy"));
        assert_eq!(response.tokens(), None);
        assert!(response.feed(b"x").is_err());
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        assert!(Response::default().feed(b"SSH-2.0 x\r\n\r\n").is_err());
        assert!(
            Response::default()
                .feed(b"HTTP/1.1 200 OK\r\n\r\n")
                .is_err()
        );
        let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert!(Response::default().feed(chunk).is_err());
    }

    #[test]
    fn the_tail_of_a_long_body_is_kept() {
        let mut response = Response {
            state: State::Plain(1 << 20),
            ..Response::default()
        };
        for _ in 0..1000 {
            response.feed(&[b'x'; 700]).unwrap();
        }
        response.feed(b"\"completion_tokens\": 31}").unwrap();
        assert_eq!(response.tokens(), Some(31));
        assert!(response.tail.len() <= 2 * TAIL);
    }
}
