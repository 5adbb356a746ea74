//! How field types travel.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{DecodeError, Reader, Writer};

/// A type that a field may have.
pub trait Wire: Sized {
    /// Appends the value.
    fn write(&self, out: &mut Writer<'_>);

    /// Takes one value.
    ///
    /// # Errors
    /// If the bytes are not such a value.
    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Token ids, packed as little-endian int32.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(pub Vec<i32>);

/// Token ids as [`Tokens`], of which there are few: up to four need no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FewTokens(SmallVec<[i32; 4]>);

/// Raw bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

/// Numbers, packed as little-endian float32.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Floats(pub Vec<f32>);

impl Deref for Tokens {
    type Target = Vec<i32>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Tokens {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<Vec<i32>> for Tokens {
    fn from(ids: Vec<i32>) -> Self {
        Self(ids)
    }
}

impl Deref for FewTokens {
    type Target = [i32];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<Vec<i32>> for FewTokens {
    fn from(ids: Vec<i32>) -> Self {
        Self(SmallVec::from_vec(ids))
    }
}

fn write_ids(ids: &[i32], out: &mut Writer<'_>) {
    out.bin(4 * ids.len());
    for id in ids {
        out.raw(&id.to_le_bytes());
    }
}

fn read_ids<T: FromIterator<i32>>(input: &mut Reader<'_>) -> Result<T, DecodeError> {
    let bytes = input.bin()?;
    let (ids, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(DecodeError::Tokens(bytes.len()));
    }
    Ok(ids.iter().map(|id| i32::from_le_bytes(*id)).collect())
}

impl Wire for Tokens {
    fn write(&self, out: &mut Writer<'_>) {
        write_ids(&self.0, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        read_ids(input).map(Self)
    }
}

impl Wire for FewTokens {
    fn write(&self, out: &mut Writer<'_>) {
        write_ids(&self.0, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        read_ids(input).map(Self)
    }
}

impl Wire for Floats {
    fn write(&self, out: &mut Writer<'_>) {
        out.bin(4 * self.0.len());
        for value in &self.0 {
            out.raw(&value.to_le_bytes());
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = input.bin()?;
        let (values, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(DecodeError::Floats(bytes.len()));
        }
        Ok(Self(
            values
                .iter()
                .map(|value| f32::from_le_bytes(*value))
                .collect(),
        ))
    }
}

impl Wire for Blob {
    fn write(&self, out: &mut Writer<'_>) {
        out.bin(self.0.len());
        out.raw(&self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(input.bin()?.to_vec()))
    }
}

macro_rules! integers {
    ($($type:ty => $method:ident from $read:ident),*) => {$(
        impl Wire for $type {
            fn write(&self, out: &mut Writer<'_>) {
                out.$method((*self).into());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
                <$type>::try_from(input.$read()?).map_err(|_| DecodeError::OutOfRange)
            }
        }
    )*};
}

integers!(u32 => uint from unsigned, u64 => uint from unsigned, i32 => int from integer, i64 => int from integer);

impl Wire for bool {
    fn write(&self, out: &mut Writer<'_>) {
        out.bool(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        input.bool()
    }
}

impl Wire for f64 {
    fn write(&self, out: &mut Writer<'_>) {
        out.float(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        input.float()
    }
}

impl Wire for String {
    fn write(&self, out: &mut Writer<'_>) {
        out.str(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(input.str()?.to_owned())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Some(value) => value.write(out),
            None => out.nil(),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if input.nil() {
            Ok(None)
        } else {
            T::read(input).map(Some)
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn write(&self, out: &mut Writer<'_>) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::read(input).map(Self::new)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn write(&self, out: &mut Writer<'_>) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::read(input).map(Self::new)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(self.len());
        for item in self {
            item.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = input.array()?;
        // Each item takes at least a byte: a false length must not reserve memory that its bytes do not back.
        let mut items = Self::with_capacity(len.min(input.remaining()));
        for _ in 0..len {
            items.push(T::read(input)?);
        }
        Ok(items)
    }
}

impl Wire for BTreeMap<String, String> {
    fn write(&self, out: &mut Writer<'_>) {
        out.map(self.len());
        for (key, value) in self {
            out.str(key);
            out.str(value);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = input.map()?;
        let mut map = Self::new();
        for _ in 0..len {
            map.insert(String::read(input)?, String::read(input)?);
        }
        Ok(map)
    }
}
