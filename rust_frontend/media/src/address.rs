//! Addresses that may be dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    base: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} must be an address or a range such as 10.1.0.0/16");
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { base, bits })
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                let cut = |bits: u32| bits.checked_shr(shift).unwrap_or(0);
                cut(base.to_bits()) == cut(address.to_bits())
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                let cut = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
                cut(base.to_bits()) == cut(address.to_bits())
            }
            _ => false,
        }
    }
}

/// Whether an address is one of the public internet (IANA's registries of special addresses), whatever form it comes in.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 192 && b == 88 && c == 99) // 6to4 relays
        || (a == 198 && (18..20).contains(&b)); // benchmarks
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // Global unicast alone: this leaves out loopback, unspecified, mapped and compatible IPv4, NAT64, unique local, link
    // local, site local and multicast addresses.
    let global = parts[0] & 0xe000 == 0x2000;
    let special = (parts[0] == 0x2001 && (parts[1] < 0x0200 || parts[1] == 0x0db8)) // protocols, Teredo, documentation
        || (parts[0] == 0x3fff && parts[1] < 0x1000) // documentation
        || parts[0] == 0x2002; // 6to4, which holds an IPv4 address
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public_in_any_form() {
        let special = "127.0.0.1 127.9.9.9 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 \
            100.127.0.1 0.0.0.0 0.1.2.3 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 192.0.0.1 192.0.2.1 198.18.0.1 \
            198.51.100.1 203.0.113.1 192.88.99.1 ::1 :: ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::7f00:1 64:ff9b::7f00:1 \
            64:ff9b:1::1 fe80::1 fec0::1 fc00::1 fd12::1 ff02::1 2001:db8::1 2001::1 2002:7f00:1::1 3fff::1";
        for text in special.split_whitespace() {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in
            "1.1.1.1 8.8.8.8 172.32.0.1 100.128.0.1 198.20.0.1 2606:4700::1 2a00:1450::1".split(' ')
        {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn ranges_hold_what_they_should() {
        let holds = |range: &str, address: &str| {
            AddressRange::parse(range)
                .unwrap()
                .holds(address.parse().unwrap())
        };
        assert!(holds("10.1.0.0/16", "10.1.255.3") && !holds("10.1.0.0/16", "10.2.0.0"));
        assert!(holds("10.1.2.3", "10.1.2.3") && !holds("10.1.2.3", "10.1.2.4"));
        assert!(holds("0.0.0.0/0", "9.9.9.9") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fd00::1") && !holds("fd00::/8", "fc00::1"));
        assert!(holds("127.0.0.1", "::ffff:127.0.0.1"));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "x"] {
            assert!(AddressRange::parse(text).is_err(), "{text}");
        }
    }
}
