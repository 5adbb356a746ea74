//! Media that requests name: fetched within a policy, capped in bytes and pixels.
//!
//! Charter: no client makes the server talk to an address that its operator did not allow, learns an address from an error,
//! or makes it hold more than the caps. What is dialled is the address that was checked; nothing is looked up twice.

mod address;
mod error;
mod fetch;
mod host;
mod http_get;
mod pixels;
mod policy;

pub use address::{AddressRange, is_public};
pub use error::MediaError;
pub use fetch::{Addresses, Fetcher, Resolve, SystemResolver};
pub use host::HostRule;
pub use pixels::{Dimensions, dimensions};
pub use policy::MediaPolicy;
