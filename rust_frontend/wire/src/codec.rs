//! `MessagePack` values, exactly as msgspec writes them: every integer and length in its shortest form.

use rmp::Marker;

use crate::DecodeError;

/// Appends `MessagePack` values to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

/// Writing to a `Vec` cannot fail.
fn done<T, E>(_result: Result<T, E>) {}

/// Lengths beyond 4 GiB cannot be written; the caller's data is far smaller.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Writes nil.
    pub fn nil(&mut self) {
        done(rmp::encode::write_nil(self.out));
    }

    /// Writes a boolean.
    pub fn bool(&mut self, value: bool) {
        done(rmp::encode::write_bool(self.out, value));
    }

    /// Writes an unsigned integer.
    pub fn uint(&mut self, value: u64) {
        done(rmp::encode::write_uint(self.out, value));
    }

    /// Writes a signed integer; one that is not negative is written as unsigned.
    pub fn int(&mut self, value: i64) {
        done(rmp::encode::write_sint(self.out, value));
    }

    /// Writes a 64-bit float.
    pub fn float(&mut self, value: f64) {
        done(rmp::encode::write_f64(self.out, value));
    }

    /// Writes a string.
    pub fn str(&mut self, value: &str) {
        done(rmp::encode::write_str(self.out, value));
    }

    /// Writes the head of `len` bytes, which [`Writer::raw`] must follow.
    pub fn bin(&mut self, len: usize) {
        done(rmp::encode::write_bin_len(self.out, length(len)));
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes the head of an array, whose items must follow.
    pub fn array(&mut self, len: usize) {
        done(rmp::encode::write_array_len(self.out, length(len)));
    }

    /// Writes the head of a map, whose keys and values must follow.
    pub fn map(&mut self, len: usize) {
        done(rmp::encode::write_map_len(self.out, length(len)));
    }
}

/// Takes `MessagePack` values from the front of a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next marker byte, not taken.
    fn peek(&self) -> Result<u8, DecodeError> {
        self.rest.first().copied().ok_or(DecodeError::Truncated)
    }

    /// Takes `len` bytes as they are.
    ///
    /// # Errors
    /// `Truncated` if fewer are left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes `N` bytes as a big-endian number.
    fn be<const N: usize>(&mut self) -> Result<u64, DecodeError> {
        Ok(self
            .take(N)?
            .iter()
            .fold(0, |value, byte| (value << 8) | u64::from(*byte)))
    }

    /// Takes a big-endian length of `N` bytes.
    fn len<const N: usize>(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(self.be::<N>()?).map_err(|_| DecodeError::OutOfRange)
    }

    fn marker(&mut self) -> Result<Marker, DecodeError> {
        Ok(Marker::from_u8(self.be::<1>()? as u8))
    }

    fn unexpected<T>(expected: &'static str, marker: Marker) -> Result<T, DecodeError> {
        Err(DecodeError::Unexpected {
            expected,
            found: marker.to_u8(),
        })
    }

    /// Takes nil if it comes next.
    pub fn nil(&mut self) -> bool {
        let found = self.rest.first() == Some(&Marker::Null.to_u8());
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// If something else comes.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.marker()? {
            Marker::True => Ok(true),
            Marker::False => Ok(false),
            other => Self::unexpected("a boolean", other),
        }
    }

    /// Takes an integer of any width.
    ///
    /// # Errors
    /// If something else comes.
    pub fn integer(&mut self) -> Result<i128, DecodeError> {
        Ok(match self.marker()? {
            Marker::FixPos(value) => i128::from(value),
            Marker::FixNeg(value) => i128::from(value),
            Marker::U8 => i128::from(self.be::<1>()?),
            Marker::U16 => i128::from(self.be::<2>()?),
            Marker::U32 => i128::from(self.be::<4>()?),
            Marker::U64 => i128::from(self.be::<8>()?),
            Marker::I8 => i128::from(self.be::<1>()? as i8),
            Marker::I16 => i128::from(self.be::<2>()? as i16),
            Marker::I32 => i128::from(self.be::<4>()? as i32),
            Marker::I64 => i128::from(self.be::<8>()? as i64),
            other => return Self::unexpected("an integer", other),
        })
    }

    /// Takes an integer that is not negative.
    ///
    /// # Errors
    /// If something else comes; `OutOfRange` for a negative one.
    pub fn unsigned(&mut self) -> Result<u64, DecodeError> {
        match Marker::from_u8(self.peek()?) {
            Marker::FixPos(value) => {
                self.take(1)?;
                Ok(u64::from(value))
            }
            Marker::U64 => {
                self.take(1)?;
                self.be::<8>()
            }
            _ => u64::try_from(self.integer()?).map_err(|_| DecodeError::OutOfRange),
        }
    }

    /// Takes a float; an integer counts as one, as in msgspec.
    ///
    /// # Errors
    /// If something else comes.
    pub fn float(&mut self) -> Result<f64, DecodeError> {
        match Marker::from_u8(self.peek()?) {
            Marker::F64 => {
                self.take(1)?;
                Ok(f64::from_bits(self.be::<8>()?))
            }
            Marker::F32 => {
                self.take(1)?;
                Ok(f64::from(f32::from_bits(self.be::<4>()? as u32)))
            }
            _ => Ok(self.integer()? as f64),
        }
    }

    /// Takes a string.
    ///
    /// # Errors
    /// If something else comes, or it is not UTF-8.
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let len = match self.marker()? {
            Marker::FixStr(len) => usize::from(len),
            Marker::Str8 => self.len::<1>()?,
            Marker::Str16 => self.len::<2>()?,
            Marker::Str32 => self.len::<4>()?,
            other => return Self::unexpected("a string", other),
        };
        std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::Utf8)
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// If something else comes.
    pub fn bin(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = match self.marker()? {
            Marker::Bin8 => self.len::<1>()?,
            Marker::Bin16 => self.len::<2>()?,
            Marker::Bin32 => self.len::<4>()?,
            other => return Self::unexpected("bytes", other),
        };
        self.take(len)
    }

    /// Takes the head of an array: how many items follow.
    ///
    /// # Errors
    /// If something else comes.
    pub fn array(&mut self) -> Result<usize, DecodeError> {
        match self.marker()? {
            Marker::FixArray(len) => Ok(usize::from(len)),
            Marker::Array16 => self.len::<2>(),
            Marker::Array32 => self.len::<4>(),
            other => Self::unexpected("an array", other),
        }
    }

    /// Takes the head of a map: how many pairs follow.
    ///
    /// # Errors
    /// If something else comes.
    pub fn map(&mut self) -> Result<usize, DecodeError> {
        match self.marker()? {
            Marker::FixMap(len) => Ok(usize::from(len)),
            Marker::Map16 => self.len::<2>(),
            Marker::Map32 => self.len::<4>(),
            other => Self::unexpected("a map", other),
        }
    }

    /// Skips `count` values of any kind, without recursion, so that nesting cannot exhaust the stack.
    ///
    /// # Errors
    /// `Truncated` if fewer are there.
    pub fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        let mut left = count;
        while left > 0 {
            left -= 1;
            let inner = self.skip_one()?;
            left = left.checked_add(inner).ok_or(DecodeError::OutOfRange)?;
        }
        Ok(())
    }

    /// Skips one value's head and, unless it is a container, its content. Returns the number of values inside.
    fn skip_one(&mut self) -> Result<usize, DecodeError> {
        let marker = self.marker()?;
        let bytes = match marker {
            Marker::FixArray(len) => return Ok(usize::from(len)),
            Marker::Array16 => return self.len::<2>(),
            Marker::Array32 => return self.len::<4>(),
            Marker::FixMap(len) => return Ok(2 * usize::from(len)),
            Marker::Map16 => return Ok(2 * self.len::<2>()?),
            Marker::Map32 => {
                return self
                    .len::<4>()?
                    .checked_mul(2)
                    .ok_or(DecodeError::OutOfRange);
            }
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {
                0
            }
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixStr(len) => usize::from(len),
            Marker::Str8 | Marker::Bin8 => self.len::<1>()?,
            Marker::Str16 | Marker::Bin16 => self.len::<2>()?,
            Marker::Str32 | Marker::Bin32 => self.len::<4>()?,
            Marker::FixExt2 => 3,
            Marker::FixExt4 => 5,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::Ext8 => self.len::<1>()? + 1,
            Marker::Ext16 => self.len::<2>()? + 1,
            Marker::Ext32 => self.len::<4>()?.saturating_add(1),
            Marker::Reserved => return Self::unexpected("a value", marker),
        };
        self.take(bytes)?;
        Ok(0)
    }
}
