//! The alphabet of byte-level tokenizers, which GPT-2 began: printable Latin-1 stands for itself, the other 68 bytes for
//! the characters from U+0100 on, in order.

/// One more than the last character of the alphabet.
const END: usize = 0x144;

/// The byte that each character stands for.
const BYTES: [Option<u8>; END] = bytes();

const fn bytes() -> [Option<u8>; END] {
    let mut table = [None; END];
    let mut byte = 0;
    let mut next = 0x100;
    loop {
        if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
            table[byte as usize] = Some(byte);
        } else {
            table[next] = Some(byte);
            next += 1;
        }
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Appends the bytes that a token stands for. False, and nothing is appended, where a character is not of the alphabet.
pub(crate) fn append(token: &str, bytes: &mut Vec<u8>) -> bool {
    let before = bytes.len();
    for letter in token.chars() {
        let Some(byte) = BYTES.get(letter as usize).copied().flatten() else {
            bytes.truncate(before);
            return false;
        };
        bytes.push(byte);
    }
    true
}

/// All characters of the alphabet with the bytes that they stand for.
pub(crate) fn letters() -> impl Iterator<Item = (char, u8)> {
    let letters = BYTES.iter().zip('\0'..);
    letters.filter_map(|(byte, letter)| byte.map(|byte| (letter, byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_that_of_byte_level_tokenizers() {
        let mut all: Vec<u8> = letters().map(|(_, byte)| byte).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..=u8::MAX));
        for (letter, byte) in [
            ('Ġ', b' '),
            ('Ċ', b'\n'),
            ('a', b'a'),
            ('Â', 0xC2),
            ('ł', 0xA0),
            ('Ń', 0xAD),
        ] {
            assert_eq!(BYTES[letter as usize], Some(byte), "{letter}");
        }
    }

    #[test]
    fn tokens_with_other_characters_are_none() {
        let mut bytes = b"<".to_vec();
        assert!(append("Ġcaf\u{c3}\u{a9}", &mut bytes));
        assert_eq!(bytes, "< café".as_bytes());
        assert!(!append("im end", &mut bytes));
        assert_eq!(bytes, "< café".as_bytes());
    }
}
