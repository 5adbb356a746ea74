//! The root of a chain: what the tokens alone do not say.

use blake3::Hasher;

use crate::KEY_BYTES;

/// Separates roots from links and from all other BLAKE3 hashes.
const CONTEXT: &str = "octavo 2026-11 kv block root v1";

/// Why a root cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// A field without a tag says nothing.
    #[error(
        "field {0} of {1} has an empty tag; name what its value is, as in (\"model\", b\"...\")"
    )]
    EmptyTag(usize, usize),
}

/// Hashes a list of (tag, value) into a key of [`KEY_BYTES`].
///
/// Tags say what a value is ("model", "`kv_dtype`", "`weight_version`", "salt", "adapter"), so that equal bytes in two
/// roles never meet. Every part is preceded by its length: no two lists give the same input to the hash. Order counts,
/// and a tag may come more than once.
///
/// # Errors
/// An empty tag.
pub fn root<T: AsRef<str>, V: AsRef<[u8]>>(
    fields: &[(T, V)],
) -> Result<[u8; KEY_BYTES], RootError> {
    let mut hasher = Hasher::new_derive_key(CONTEXT);
    hasher.update(&(fields.len() as u64).to_le_bytes());
    for (index, (tag, value)) in fields.iter().enumerate() {
        if tag.as_ref().is_empty() {
            return Err(RootError::EmptyTag(index, fields.len()));
        }
        for part in [tag.as_ref().as_bytes(), value.as_ref()] {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
    }
    let mut key = [0; KEY_BYTES];
    hasher.finalize_xof().fill(&mut key);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fields = Vec<(String, Vec<u8>)>;

    fn fields() -> impl Strategy<Value = Fields> {
        prop::collection::vec(("[a-c]{1,3}", prop::collection::vec(0u8..3, 0..3)), 0..4)
    }

    #[test]
    fn tells_roles_and_borders_apart() {
        let lists: [&[(&str, &str)]; 6] = [
            &[],
            &[("salt", "")],
            &[("salt", "model")],
            &[("model", "salt")],
            &[("salt", "a"), ("b", "c")],
            &[("salt", "ab"), ("b", "c")],
        ];
        let mut keys: Vec<_> = lists.iter().map(|fields| root(fields).unwrap()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), lists.len());
    }

    #[test]
    fn refuses_an_empty_tag_by_its_place() {
        let error = root(&[("a", "1"), ("", "2")]).unwrap_err();
        assert_eq!(error, RootError::EmptyTag(1, 2));
    }

    #[test]
    fn keeps_its_scheme() {
        let key = root(&[("model", "m"), ("kv_dtype", "bfloat16")]).unwrap();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "254d2a2a5c5e33b2a37bbcb36d8524b0");
    }

    proptest! {
        #[test]
        fn differs_where_the_lists_differ(a in fields(), b in fields()) {
            prop_assert_eq!(root(&a).unwrap() == root(&b).unwrap(), a == b);
        }
    }
}
