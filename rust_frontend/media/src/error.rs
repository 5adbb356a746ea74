//! Why media cannot be had. Messages are for clients: they hold no address and nothing of what a server said.

use octavo_api::ApiError;

/// A medium that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// The URL is none.
    #[error("The URL cannot be read: it must be http, https or data, with a host.")]
    Url,
    /// This server does not fetch from there.
    #[error("This server does not fetch media from there: {0}.")]
    Refused(&'static str),
    /// Too many redirects.
    #[error("The URL leads through more than {0} redirects.")]
    Redirects(usize),
    /// Nobody answers, or not in time, or not with the medium.
    #[error("The medium cannot be fetched: {0}.")]
    Unreachable(String),
    /// More bytes than the cap.
    #[error("The medium has more than {0} bytes, this server's limit.")]
    TooLarge(usize),
    /// More pixels than the cap.
    #[error("The image has {width} x {height} pixels; this server's limit is {limit}.")]
    TooManyPixels {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
        /// Width times height.
        limit: u64,
    },
    /// The bytes are no image of a known format.
    #[error("The medium is no image that this server reads (PNG, JPEG, GIF, WebP).")]
    NoImage,
    /// A data URL that cannot be decoded.
    #[error("The data URL is not base64.")]
    Data,
}

impl MediaError {
    /// The answer to the client: 400 that names the field.
    #[must_use]
    pub fn answer(&self, param: &str) -> ApiError {
        ApiError::invalid(param, self.to_string())
    }
}
