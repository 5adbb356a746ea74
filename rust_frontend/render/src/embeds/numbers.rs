//! What numbers vectors are made of.

/// A type of numbers that models compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    Float32,
    Float16,
    Bfloat16,
}

/// Largest number of float16: no embedding is near it, and what is beyond would overflow in a layer, to values that are
/// no numbers.
const LARGEST: f32 = 65504.0;

impl Dtype {
    /// As the wire calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// Of one number.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
        }
    }
}

/// What is said of every other type.
pub(super) fn unknown(name: &str) -> String {
    format!("holds numbers of the type {name}; float32, float16 and bfloat16 are read")
}

/// Checks that all numbers are finite and none is larger than any model's.
pub(super) fn check(dtype: Dtype, values: &[u8], width: usize) -> Result<(), String> {
    let found = match dtype {
        Dtype::Float32 => {
            let (numbers, _) = values.as_chunks::<4>();
            numbers
                .iter()
                .position(|bytes| !sound(f32::from_le_bytes(*bytes)))
        }
        Dtype::Bfloat16 => {
            let (numbers, _) = values.as_chunks::<2>();
            let wide = |[low, high]: [u8; 2]| f32::from_le_bytes([0, 0, low, high]);
            numbers.iter().position(|bytes| !sound(wide(*bytes)))
        }
        Dtype::Float16 => {
            let (numbers, _) = values.as_chunks::<2>();
            numbers.iter().position(|[_, high]| high & 0x7C == 0x7C) // all bits of the exponent: no finite number
        }
    };
    match found {
        None => Ok(()),
        Some(at) => Err(format!(
            "must hold finite numbers from -{LARGEST} to {LARGEST}; number {} of vector {} is none",
            at % width.max(1),
            at / width.max(1)
        )),
    }
}

fn sound(number: f32) -> bool {
    number.abs() <= LARGEST // false for what is no number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_no_number() {
        let floats = |numbers: &[f32]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        assert!(check(Dtype::Float32, &floats(&[0.0, -65504.0, 1e-40]), 3).is_ok());
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65505.0, -1e30] {
            let error = check(Dtype::Float32, &floats(&[0.0, 1.0, 2.0, wrong]), 2).unwrap_err();
            assert!(error.contains("number 1 of vector 1"), "{error}");
        }
        let halves = |numbers: &[u16]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        assert!(check(Dtype::Float16, &halves(&[0x7BFF, 0xFBFF, 0x0001]), 1).is_ok());
        assert!(check(Dtype::Float16, &halves(&[0x7C00]), 1).is_err());
        assert!(check(Dtype::Float16, &halves(&[0xFE01]), 1).is_err());
        assert!(check(Dtype::Bfloat16, &halves(&[0x3F80, 0x477F]), 1).is_ok());
        assert!(check(Dtype::Bfloat16, &halves(&[0x7F80]), 1).is_err());
        assert!(check(Dtype::Bfloat16, &halves(&[0xFFC0]), 1).is_err());
        assert!(check(Dtype::Bfloat16, &halves(&[0x7F00]), 1).is_err());
    }
}
