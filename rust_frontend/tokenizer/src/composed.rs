//! The composed form of a text (NFC), by the tables of the `tokenizers` crate.

use std::borrow::Cow;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// The first byte of U+0300. Characters before it have no other form and go together with none before them.
const FIRST: u8 = 0xCC;

/// A text in composed form.
pub(crate) fn composed(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| byte < FIRST);
    if plain || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().map(|(letter, _)| letter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::normalizers::NFC;
    use tokenizers::{NormalizedString, Normalizer};

    fn reference(text: &str) -> String {
        let mut normalized = NormalizedString::from(text);
        NFC.normalize(&mut normalized).unwrap();
        normalized.get().to_owned()
    }

    #[test]
    fn every_character_is_as_in_the_crate() {
        for letter in '\0'..'\u{32000}' {
            let text = format!("e{letter}\u{301}");
            assert_eq!(composed(&text), reference(&text), "{letter:?}");
            let text = letter.to_string();
            assert_eq!(composed(&text), reference(&text), "{letter:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_as_in_the_crate(text in "(\\PC|[aeou가각각][\u{300}-\u{330}]{0,3}){0,20}") {
            prop_assert_eq!(composed(&text), reference(&text));
        }
    }
}
