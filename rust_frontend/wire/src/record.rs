//! Records and messages: structs that travel as arrays, unions that travel as tagged arrays.

use crate::{DecodeError, Reader, Writer};

/// A struct whose fields travel, in order, as the items of an array.
pub trait Record: Sized {
    /// The struct's name; a message's tag.
    const NAME: &'static str;
    /// How many fields this version knows.
    const FIELDS: usize;

    /// Appends the fields, without the array's head.
    fn write_fields(&self, out: &mut Writer<'_>);

    /// Takes the fields of an array of `len` items: absent ones get their default, surplus ones are skipped.
    ///
    /// # Errors
    /// If a field is not what it must be, or is absent and has no default.
    fn read_fields(input: &mut Reader<'_>, len: usize) -> Result<Self, DecodeError>;

    /// Appends the record as a message of its own: its name comes first.
    fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        out.array(1 + Self::FIELDS);
        out.str(Self::NAME);
        self.write_fields(&mut out);
    }
}

/// A union of records, told apart by their names.
pub trait Message: Sized {
    /// Appends the message.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes one message that fills `bytes`.
    ///
    /// # Errors
    /// `UnknownTag` for a message of a later version; otherwise what is wrong with the bytes.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Checks that nothing follows.
pub(crate) fn end<T>(input: &Reader<'_>, value: T) -> Result<T, DecodeError> {
    match input.remaining() {
        0 => Ok(value),
        rest => Err(DecodeError::Trailing(rest)),
    }
}

/// Declares records: `field: Type`, or `field: Type = default` for one that older peers do not send.
macro_rules! records {
    ($(
        $(#[$meta:meta])*
        struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $default:expr)?,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::Record for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: usize = [$(stringify!($field)),*].len();

            fn write_fields(&self, out: &mut $crate::Writer<'_>) {
                $($crate::Wire::write(&self.$field, out);)*
            }

            fn read_fields(input: &mut $crate::Reader<'_>, len: usize) -> Result<Self, $crate::DecodeError> {
                let mut left = len;
                $(
                    let $field: $type = if left > 0 {
                        left -= 1;
                        $crate::Wire::read(input)?
                    } else {
                        $crate::record::absent!($name, $field $(, $default)?)
                    };
                )*
                input.skip(left)?;
                Ok(Self { $($field),* })
            }
        }

        impl $crate::Wire for $name {
            fn write(&self, out: &mut $crate::Writer<'_>) {
                out.array(<Self as $crate::Record>::FIELDS);
                $crate::Record::write_fields(self, out);
            }

            fn read(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                let len = input.array()?;
                $crate::Record::read_fields(input, len)
            }
        }
    )*};
}

/// The value of a field that did not come.
macro_rules! absent {
    ($name:ident, $field:ident, $default:expr) => {
        $default
    };
    ($name:ident, $field:ident) => {
        return Err($crate::DecodeError::Missing {
            record: stringify!($name),
            field: stringify!($field),
        })
    };
}

/// Declares a union of records.
macro_rules! messages {
    ($(#[$meta:meta])* enum $name:ident { $($variant:ident),* $(,)? }) => {
        $(#[$meta])*
        // A message is taken apart where it was decoded: nobody keeps many, so that a box would only cost.
        #[allow(clippy::large_enum_variant)]
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $(#[doc = concat!("See [`", stringify!($variant), "`].")] $variant($variant),)*
        }

        impl $crate::Message for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(message) => $crate::Record::encode(message, out),)*
                }
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::DecodeError> {
                let mut input = $crate::Reader::new(bytes);
                let len = input.array()?;
                if len == 0 {
                    return Err($crate::DecodeError::Missing { record: stringify!($name), field: "tag" });
                }
                let message = match input.str()? {
                    $(<$variant as $crate::Record>::NAME =>
                        Self::$variant($crate::Record::read_fields(&mut input, len - 1)?),)*
                    other => return Err($crate::DecodeError::UnknownTag(other.to_owned())),
                };
                $crate::record::end(&input, message)
            }
        }

        $(impl From<$variant> for $name {
            fn from(message: $variant) -> Self {
                Self::$variant(message)
            }
        })*
    };
}

pub(crate) use {absent, messages, records};
