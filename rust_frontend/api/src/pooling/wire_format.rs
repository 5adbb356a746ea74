//! How vectors are written into an answer.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;

/// The form of an answer with vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Lists of numbers.
    #[default]
    Float,
    /// Base64 of the numbers' bytes.
    Base64,
    /// The numbers' bytes, one vector after the other; a header describes them.
    Bytes,
    /// The same without the header.
    BytesOnly,
}

/// The type of numbers in base64 and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmbedDtype {
    /// 4 bytes.
    #[default]
    Float32,
    /// 2 bytes, IEEE.
    Float16,
    /// 2 bytes, the upper half of a float32.
    Bfloat16,
}

/// The order of a number's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endianness {
    /// The server's own, which is little on all that octavo runs on.
    #[default]
    Native,
    /// The lowest first.
    Little,
    /// The highest first.
    Big,
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VectorFormat {
    /// Of the answer.
    pub encoding: Encoding,
    /// Of numbers in base64 and bytes.
    pub dtype: EmbedDtype,
    /// Of their bytes.
    pub endianness: Endianness,
}

impl EmbedDtype {
    /// As requests name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// Bytes of a number.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
        }
    }
}

impl Endianness {
    /// Whether the highest byte comes first.
    #[must_use]
    pub fn is_big(self) -> bool {
        match self {
            Self::Big => true,
            Self::Little => false,
            Self::Native => cfg!(target_endian = "big"),
        }
    }
}

impl VectorFormat {
    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let encodings = [
            ("float", Encoding::Float),
            ("base64", Encoding::Base64),
            ("bytes", Encoding::Bytes),
            ("bytes_only", Encoding::BytesOnly),
        ];
        let dtypes = [
            ("float32", EmbedDtype::Float32),
            ("float16", EmbedDtype::Float16),
            ("bfloat16", EmbedDtype::Bfloat16),
        ];
        let orders = [
            ("native", Endianness::Native),
            ("little", Endianness::Little),
            ("big", Endianness::Big),
        ];
        Ok(Self {
            encoding: word(fields, "encoding_format", &encodings)?,
            dtype: word(fields, "embed_dtype", &dtypes)?,
            endianness: word(fields, "endianness", &orders)?,
        })
    }

    /// The bytes of numbers.
    #[must_use]
    pub fn bytes(self, values: &[f32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(values.len() * self.dtype.size());
        let big = self.endianness.is_big();
        for value in values {
            match self.dtype {
                EmbedDtype::Float32 if big => out.extend(value.to_be_bytes()),
                EmbedDtype::Float32 => out.extend(value.to_le_bytes()),
                EmbedDtype::Float16 => out.extend(ordered(half(*value), big)),
                EmbedDtype::Bfloat16 => out.extend(ordered(brain(*value), big)),
            }
        }
        out
    }
}

fn ordered(bits: u16, big: bool) -> [u8; 2] {
    if big {
        bits.to_be_bytes()
    } else {
        bits.to_le_bytes()
    }
}

/// Takes a field that is one of some words.
pub(crate) fn word<T: Copy + Default>(
    fields: &mut Map<String, Value>,
    name: &str,
    words: &[(&str, T)],
) -> Result<T, ApiError> {
    let Some(given) = field::string(fields, name)? else {
        return Ok(T::default());
    };
    let found = words.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let shown: String = given.chars().take(60).collect();
        let message = format!(
            "'{name}' must be one of {}; got {shown:?}.",
            known.join(", ")
        );
        ApiError::invalid(name, message)
    })
}

/// The upper half of a float32, rounded to even.
fn brain(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) as u16) | 0x40;
    }
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    (rounded >> 16) as u16
}

/// An IEEE half, rounded to even.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let exponent = ((bits >> 23) & 0xFF) as i32 - 127;
    let fraction = bits & 0x007F_FFFF;
    if exponent == 128 {
        let nan = if fraction == 0 { 0 } else { 0x200 };
        return sign | 0x7C00 | nan;
    }
    if exponent > 15 {
        return sign | 0x7C00;
    }
    // The fraction with its leading one, and how many of its bits a half has no room for.
    let (whole, shift, base) = if exponent >= -14 {
        (fraction, 13, ((exponent + 15) as u32) << 10)
    } else if exponent >= -25 {
        (fraction | 0x0080_0000, (-exponent - 1) as u32, 0)
    } else {
        return sign;
    };
    let kept = whole >> shift;
    let rest = whole & ((1 << shift) - 1);
    let middle = 1 << (shift - 1);
    let up = u32::from(rest > middle || (rest == middle && kept & 1 == 1));
    sign | (base + kept + up) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn halves_are_those_of_ieee() {
        for (value, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65520.0, 0x7C00),
            (f32::INFINITY, 0x7C00),
            (0.1, 0x2E66),
            (6.103_515_6e-5, 0x0400),
            (6.0e-8, 0x0001),
            (2.0e-8, 0x0000),
            (1.000_488_3, 0x3C00),
            (1.001_464_8, 0x3C02),
        ] {
            assert_eq!(half(value), bits, "{value}");
        }
        assert_eq!(half(f32::NAN) & 0x7E00, 0x7E00);
    }

    #[test]
    fn brain_floats_round_to_even() {
        for (value, bits) in [
            (1.0_f32, 0x3F80),
            (1.003_906_2, 0x3F80),
            (1.011_718_8, 0x3F82),
        ] {
            assert_eq!(brain(value), bits, "{value}");
        }
    }

    #[test]
    fn bytes_have_their_order() {
        let little = VectorFormat::default();
        assert_eq!(little.bytes(&[1.0]), [0, 0, 0x80, 0x3F]);
        let big = VectorFormat {
            endianness: Endianness::Big,
            dtype: EmbedDtype::Bfloat16,
            ..little
        };
        assert_eq!(big.bytes(&[1.0, -2.0]), [0x3F, 0x80, 0xC0, 0x00]);
    }

    #[test]
    fn other_words_are_refused_by_name() {
        let mut fields = json!({"encoding_format": "hex"})
            .as_object()
            .unwrap()
            .clone();
        let error = VectorFormat::take(&mut fields).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("encoding_format"));
        assert!(error.message.contains("float, base64, bytes"), "{error}");
    }
}
