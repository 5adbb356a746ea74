//! EBNF as llama.cpp and XGrammar write it, rewritten as Lark.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::error::ConstraintError;
use super::lark::literal;

/// Repetitions are counted so far.
const MAX_COUNT: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    Defined,
    Literal(String),
    /// A character class, as a regular expression.
    Class(String),
    /// `( ) | * + ?`
    Sign(char),
    /// `{m}`, `{m,}`, `{m,n}`
    Count(u64, Option<Option<u64>>),
}

/// Rewrite a grammar whose first rule is `root`.
///
/// # Errors
/// What cannot be read, with its line; a rule that is missing or there twice.
pub(crate) fn to_lark(text: &str) -> Result<String, ConstraintError> {
    let tokens = Reader {
        rest: text,
        line: 1,
    }
    .read()?;
    let starts: Vec<usize> = tokens
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| matches!(pair[0].0, Token::Name(_)) && pair[1].0 == Token::Defined)
        .map(|(index, _)| index)
        .collect();
    if starts.first() != Some(&0) {
        return Err(ConstraintError::whole("must begin with a rule: name ::= …"));
    }
    let mut names: HashMap<&str, String> = HashMap::new();
    for (number, start) in starts.iter().enumerate() {
        if let (Token::Name(name), line) = &tokens[*start] {
            let lark = if name == "root" {
                "start".to_owned()
            } else {
                format!("r{number}")
            };
            if names.insert(name, lark).is_some() {
                return Err(at(*line, &format!("the rule {name} is there twice")));
            }
        }
    }
    if !names.contains_key("root") {
        return Err(ConstraintError::whole("has no rule named root"));
    }
    let mut out = String::new();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(tokens.len());
        if let (Token::Name(name), line) = &tokens[*start] {
            let body = rule(&tokens[start + 2..end], &names)?;
            if body.is_empty() {
                return Err(at(
                    *line,
                    &format!("the rule {name} is empty; write \"\" for no text"),
                ));
            }
            let _ = writeln!(out, "{}: {body}", names[name.as_str()]);
        }
    }
    Ok(out)
}

fn rule(
    tokens: &[(Token, usize)],
    names: &HashMap<&str, String>,
) -> Result<String, ConstraintError> {
    let mut out = String::new();
    // Whether something must follow before the next `|` or `)`: Lark has no empty alternative.
    let mut open = false;
    for (token, line) in tokens {
        let text = match token {
            Token::Name(name) => names
                .get(name.as_str())
                .cloned()
                .ok_or_else(|| at(*line, &format!("there is no rule {name}")))?,
            Token::Literal(text) => literal(text),
            Token::Class(class) => format!("/{class}/"),
            Token::Sign(sign @ ('|' | ')')) if open => format!("\"\" {sign}"),
            Token::Sign(sign) => sign.to_string(),
            Token::Count(least, most) => match most {
                None => format!("{{{least}}}"),
                Some(None) => format!("{{{least},}}"),
                Some(Some(most)) => format!("{{{least},{most}}}"),
            },
            Token::Defined => return Err(at(*line, "::= without a name before it")),
        };
        let suffix = matches!(token, Token::Sign('*' | '+' | '?') | Token::Count(..));
        if !out.is_empty() && !suffix {
            out.push(' ');
        }
        out.push_str(&text);
        open = matches!(token, Token::Sign('|' | '('));
    }
    if open {
        out.push_str(" \"\"");
    }
    Ok(out)
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Vec<(Token, usize)>, ConstraintError> {
        let mut tokens = Vec::new();
        while let Some(letter) = self.rest.chars().next() {
            let line = self.line;
            let token = match letter {
                '#' => {
                    self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
                    continue;
                }
                letter if letter.is_whitespace() => {
                    self.skip(letter.len_utf8());
                    continue;
                }
                letter if letter.is_ascii_alphabetic() || letter == '_' => self.name(),
                ':' if self.rest.starts_with("::=") => {
                    self.skip(3);
                    Token::Defined
                }
                '"' => Token::Literal(self.string()?),
                '[' => Token::Class(self.class()?),
                '.' => {
                    self.skip(1);
                    Token::Class("(?s:.)".to_owned())
                }
                '(' | ')' | '|' | '*' | '+' | '?' => {
                    self.skip(1);
                    Token::Sign(letter)
                }
                '{' => self.count()?,
                other => return Err(at(line, &format!("{other:?} is not understood here"))),
            };
            tokens.push((token, line));
        }
        Ok(tokens)
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.skip(letter.len_utf8());
        Some(letter)
    }

    fn name(&mut self) -> Token {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let end = self
            .rest
            .find(|letter| !is_part(letter))
            .unwrap_or(self.rest.len());
        let name = self.rest[..end].to_owned();
        self.skip(end);
        Token::Name(name)
    }

    fn string(&mut self) -> Result<String, ConstraintError> {
        let line = self.line;
        self.skip(1);
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(letter) if letter != '\n' => text.push(letter),
                _ => return Err(at(line, "a string does not end")),
            }
        }
    }

    fn class(&mut self) -> Result<String, ConstraintError> {
        let line = self.line;
        self.skip(1);
        let mut class = String::from("[");
        if self.rest.starts_with('^') {
            self.skip(1);
            class.push('^');
        }
        let mut letters = 0;
        loop {
            let (letter, escaped) = match self.next() {
                Some(']') if letters > 0 => break,
                Some('\\') => (self.escape()?, true),
                Some(letter) if letter != '\n' => (letter, false),
                _ => return Err(at(line, "a character class does not end, or is empty")),
            };
            let range = letter == '-' && !escaped && letters > 0 && !self.rest.starts_with(']');
            if range {
                class.push('-');
            } else {
                let _ = write!(class, "\\x{{{:x}}}", u32::from(letter));
            }
            letters += 1;
        }
        class.push(']');
        Ok(class)
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Result<char, ConstraintError> {
        let line = self.line;
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(letter) if letter.is_ascii_punctuation() => return Ok(letter),
            _ => return Err(at(line, "an escape is not understood")),
        };
        let code = self
            .rest
            .get(..digits)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let letter = code.and_then(char::from_u32);
        let letter = letter.ok_or_else(|| at(line, "an escape is no character"))?;
        self.skip(digits);
        Ok(letter)
    }

    fn count(&mut self) -> Result<Token, ConstraintError> {
        let line = self.line;
        let wrong = || {
            at(
                line,
                &format!("a repetition is {{m}}, {{m,}} or {{m,n}}, up to {MAX_COUNT}"),
            )
        };
        let end = self.rest.find('}').ok_or_else(wrong)?;
        let inside = self.rest[1..end].to_owned();
        self.skip(end + 1);
        let number = |text: &str| {
            let value = text
                .trim()
                .parse::<u64>()
                .ok()
                .filter(|value| *value <= MAX_COUNT);
            value.ok_or_else(wrong)
        };
        Ok(match inside.split_once(',') {
            None => Token::Count(number(&inside)?, None),
            Some((least, most)) if most.trim().is_empty() => {
                Token::Count(number(least)?, Some(None))
            }
            Some((least, most)) => Token::Count(number(least)?, Some(Some(number(most)?))),
        })
    }
}

fn at(line: usize, message: &str) -> ConstraintError {
    ConstraintError::whole(format!("line {line}: {message}"))
}
