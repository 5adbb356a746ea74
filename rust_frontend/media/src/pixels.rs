//! The size of an image, read from its head before anything is decoded.

use std::io::Cursor;

use image::ImageReader;

use crate::error::MediaError;
use crate::policy::MediaPolicy;

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// Reads the size of an image and holds it against the policy's cap.
///
/// # Errors
/// The bytes are no image, or one with too many pixels.
pub fn dimensions(bytes: &[u8], policy: &MediaPolicy) -> Result<Dimensions, MediaError> {
    let reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|_| MediaError::NoImage)?;
    let (width, height) = reader.into_dimensions().map_err(|_| MediaError::NoImage)?;
    if u64::from(width) * u64::from(height) > policy.max_pixels {
        return Err(MediaError::TooManyPixels {
            width,
            height,
            limit: policy.max_pixels,
        });
    }
    Ok(Dimensions { width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG's head that claims a size; its data would take gigabytes.
    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut chunk = b"IHDR".to_vec();
        chunk.extend(width.to_be_bytes());
        chunk.extend(height.to_be_bytes());
        chunk.extend([8, 2, 0, 0, 0]);
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec();
        bytes.extend(&chunk);
        bytes.extend(crc(&chunk).to_be_bytes());
        bytes.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e");
        bytes
    }

    /// CRC-32 of a PNG chunk (ISO 3309).
    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
        }
        !crc
    }

    #[test]
    fn sizes_are_read_from_the_head_and_capped() {
        let policy = MediaPolicy::default();
        let small = dimensions(&png(640, 480), &policy).unwrap();
        assert_eq!((small.width, small.height), (640, 480));
        let error = dimensions(&png(100_000, 100_000), &policy).unwrap_err();
        assert!(error.to_string().contains("100000 x 100000"), "{error}");
        for bytes in [&b""[..], b"GIF89a", b"<svg/>", b"\x89PNG\r\n\x1a\n"] {
            assert_eq!(
                dimensions(bytes, &policy),
                Err(MediaError::NoImage),
                "{bytes:?}"
            );
        }
    }
}
