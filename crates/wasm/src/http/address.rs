//! Decides which IP addresses a guest may reach. An allowed host name does not determine its
//! address: the owner of its DNS zone can point it at our internal network (SSRF). Therefore every
//! address is checked after resolution and before connecting.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Classification of an IP address by whether a guest may reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// An address on the public internet; always allowed.
    Public,
    /// An address inside a private network, with its kind; allowed only if the configuration says
    /// so.
    Private(&'static str),
    /// An address that is never a valid target of a request, with the reason.
    Forbidden(&'static str),
}

/// Addresses of cloud metadata services, which return credentials to any caller. Some are in ranges
/// that are otherwise public.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
const METADATA: AddressClass = AddressClass::Forbidden("a metadata service of a cloud");

/// IPv4 ranges that are not part of the public internet: the range, its prefix length and its
/// class.
const RANGES_V4: [(Ipv4Addr, u32, AddressClass); 16] = [
    (
        Ipv4Addr::new(0, 0, 0, 0),
        8,
        AddressClass::Forbidden("unspecified"),
    ),
    (
        Ipv4Addr::new(10, 0, 0, 0),
        8,
        AddressClass::Private("private"),
    ),
    (
        Ipv4Addr::new(100, 64, 0, 0),
        10,
        AddressClass::Private("shared with a carrier"),
    ),
    (
        Ipv4Addr::new(127, 0, 0, 0),
        8,
        AddressClass::Private("loopback"),
    ),
    (
        Ipv4Addr::new(169, 254, 0, 0),
        16,
        AddressClass::Private("link-local"),
    ),
    (
        Ipv4Addr::new(172, 16, 0, 0),
        12,
        AddressClass::Private("private"),
    ),
    (
        Ipv4Addr::new(192, 0, 0, 0),
        24,
        AddressClass::Forbidden("for protocols"),
    ),
    (
        Ipv4Addr::new(192, 0, 2, 0),
        24,
        AddressClass::Forbidden("for documentation"),
    ),
    (
        Ipv4Addr::new(192, 31, 196, 0),
        24,
        AddressClass::Forbidden("for protocols"),
    ),
    (
        Ipv4Addr::new(192, 52, 193, 0),
        24,
        AddressClass::Forbidden("for protocols"),
    ),
    (
        Ipv4Addr::new(192, 88, 99, 0),
        24,
        AddressClass::Forbidden("for protocols"),
    ),
    (
        Ipv4Addr::new(192, 168, 0, 0),
        16,
        AddressClass::Private("private"),
    ),
    (
        Ipv4Addr::new(198, 18, 0, 0),
        15,
        AddressClass::Forbidden("for benchmarks"),
    ),
    (
        Ipv4Addr::new(198, 51, 100, 0),
        24,
        AddressClass::Forbidden("for documentation"),
    ),
    (
        Ipv4Addr::new(203, 0, 113, 0),
        24,
        AddressClass::Forbidden("for documentation"),
    ),
    (
        Ipv4Addr::new(224, 0, 0, 0),
        3,
        AddressClass::Forbidden("multicast, broadcast or reserved"),
    ),
];

/// Classifies an IP address.
pub fn classify_address(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return METADATA;
    }
    let inside =
        |range: Ipv4Addr, length: u32| (address.to_bits() ^ range.to_bits()) >> (32 - length) == 0;
    let range = RANGES_V4
        .iter()
        .find(|(range, length, _)| inside(*range, *length));
    range.map_or(AddressClass::Public, |(_, _, class)| *class)
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return METADATA;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Forbidden("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Private("loopback"),
        // IPv4-mapped, IPv4-translated, NAT64 and 6to4 addresses lead to an IPv4 address and have
        // its class.
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0, 0, 0, 0, 0xffff, 0, a, b] => {
            classify_v4(embedded_ipv4(a, b))
        }
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] => classify_v4(embedded_ipv4(a, b)),
        [0x2002, a, b, ..] => classify_v4(embedded_ipv4(a, b)),
        [0x64, 0xff9b, 1, ..] => AddressClass::Private("translated within a network"),
        [0x2001, high, ..] if high < 0x200 => AddressClass::Forbidden("for protocols"),
        [0x2001, 0xdb8, ..] => AddressClass::Forbidden("for documentation"),
        [0x3fff, high, ..] if high < 0x1000 => AddressClass::Forbidden("for documentation"),
        [first, ..] if first >> 13 == 1 => AddressClass::Public,
        [first, ..] if first >> 9 == 0xfc >> 1 => AddressClass::Private("unique local"),
        [first, ..] if first >> 6 == 0xfe80 >> 6 => AddressClass::Private("link-local"),
        [first, ..] if first >> 6 == 0xfec0 >> 6 => AddressClass::Private("site-local"),
        [first, ..] if first >> 8 == 0xff => AddressClass::Forbidden("multicast"),
        _ => AddressClass::Forbidden("not assigned"),
    }
}

fn embedded_ipv4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last address of each range and the adjacent addresses, with the expected
    /// class.
    const JUDGED: &[(&str, &str)] = &[
        ("0.0.0.0", "forbidden: unspecified"),
        ("0.255.255.255", "forbidden: unspecified"),
        ("1.0.0.0", "public"),
        ("9.255.255.255", "public"),
        ("10.0.0.0", "private: private"),
        ("10.255.255.255", "private: private"),
        ("11.0.0.0", "public"),
        ("100.63.255.255", "public"),
        ("100.64.0.0", "private: shared with a carrier"),
        ("100.127.255.255", "private: shared with a carrier"),
        ("100.128.0.0", "public"),
        (
            "100.100.100.200",
            "forbidden: a metadata service of a cloud",
        ),
        ("126.255.255.255", "public"),
        ("127.0.0.1", "private: loopback"),
        ("127.255.255.255", "private: loopback"),
        ("128.0.0.0", "public"),
        ("168.63.129.15", "public"),
        ("168.63.129.16", "forbidden: a metadata service of a cloud"),
        ("169.253.255.255", "public"),
        ("169.254.0.0", "private: link-local"),
        (
            "169.254.169.254",
            "forbidden: a metadata service of a cloud",
        ),
        ("169.254.170.2", "forbidden: a metadata service of a cloud"),
        ("169.254.255.255", "private: link-local"),
        ("169.255.0.0", "public"),
        ("172.15.255.255", "public"),
        ("172.16.0.0", "private: private"),
        ("172.31.255.255", "private: private"),
        ("172.32.0.0", "public"),
        ("191.255.255.255", "public"),
        ("192.0.0.0", "forbidden: for protocols"),
        ("192.0.0.192", "forbidden: a metadata service of a cloud"),
        ("192.0.1.0", "public"),
        ("192.0.2.0", "forbidden: for documentation"),
        ("192.0.2.255", "forbidden: for documentation"),
        ("192.0.3.0", "public"),
        ("192.31.196.1", "forbidden: for protocols"),
        ("192.52.193.1", "forbidden: for protocols"),
        ("192.88.99.1", "forbidden: for protocols"),
        ("192.167.255.255", "public"),
        ("192.168.0.0", "private: private"),
        ("192.168.255.255", "private: private"),
        ("192.169.0.0", "public"),
        ("198.17.255.255", "public"),
        ("198.18.0.0", "forbidden: for benchmarks"),
        ("198.19.255.255", "forbidden: for benchmarks"),
        ("198.20.0.0", "public"),
        ("198.51.100.7", "forbidden: for documentation"),
        ("203.0.113.7", "forbidden: for documentation"),
        ("223.255.255.255", "public"),
        ("224.0.0.0", "forbidden: multicast, broadcast or reserved"),
        ("240.0.0.0", "forbidden: multicast, broadcast or reserved"),
        (
            "255.255.255.255",
            "forbidden: multicast, broadcast or reserved",
        ),
        ("::", "forbidden: unspecified"),
        ("::1", "private: loopback"),
        ("::2", "forbidden: not assigned"),
        ("::127.0.0.1", "forbidden: not assigned"),
        ("::8.8.8.8", "forbidden: not assigned"),
        ("::ffff:8.8.8.8", "public"),
        ("::ffff:127.0.0.1", "private: loopback"),
        ("::ffff:10.1.2.3", "private: private"),
        (
            "::ffff:169.254.169.254",
            "forbidden: a metadata service of a cloud",
        ),
        ("::ffff:0.0.0.0", "forbidden: unspecified"),
        ("::ffff:0:192.168.1.1", "private: private"),
        ("::ffff:0:8.8.8.8", "public"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b::127.0.0.1", "private: loopback"),
        (
            "64:ff9b::169.254.169.254",
            "forbidden: a metadata service of a cloud",
        ),
        ("64:ff9b::1:808:808", "forbidden: not assigned"),
        ("64:ff9b:1::8.8.8.8", "private: translated within a network"),
        ("100::1", "forbidden: not assigned"),
        ("2001::1", "forbidden: for protocols"),
        ("2001:1ff:ffff::1", "forbidden: for protocols"),
        ("2001:200::1", "public"),
        ("2001:db8::1", "forbidden: for documentation"),
        ("2001:db9::1", "public"),
        ("2002:7f00:1::", "private: loopback"),
        (
            "2002:a9fe:a9fe::1",
            "forbidden: a metadata service of a cloud",
        ),
        ("2002:808:808::1", "public"),
        ("2606:4700:4700::1111", "public"),
        ("3fff::1", "forbidden: for documentation"),
        ("3fff:fff::1", "forbidden: for documentation"),
        ("3fff:1000::1", "public"),
        ("1fff:ffff::", "forbidden: not assigned"),
        ("2000::", "public"),
        ("3fff:ffff::", "public"),
        ("4000::", "forbidden: not assigned"),
        ("fbff::1", "forbidden: not assigned"),
        ("fc00::1", "private: unique local"),
        ("fd00:ec2::254", "forbidden: a metadata service of a cloud"),
        ("fd20:ce::254", "forbidden: a metadata service of a cloud"),
        ("fd00:ec2::253", "private: unique local"),
        ("fdff:ffff::1", "private: unique local"),
        ("fe00::1", "forbidden: not assigned"),
        ("fe80::1", "private: link-local"),
        ("febf::1", "private: link-local"),
        ("fec0::1", "private: site-local"),
        ("ff02::1", "forbidden: multicast"),
    ];

    #[test]
    fn every_address_range_has_the_right_bounds() {
        for (text, expected) in JUDGED {
            let class = match classify_address(text.parse().unwrap()) {
                AddressClass::Public => "public".to_owned(),
                AddressClass::Private(what) => format!("private: {what}"),
                AddressClass::Forbidden(what) => format!("forbidden: {what}"),
            };
            assert_eq!(&class, expected, "{text}");
        }
    }

    #[test]
    fn ipv4_blocks_are_judged_like_the_standard_library_does() {
        let thirds = [
            0, 1, 2, 3, 63, 64, 98, 99, 100, 101, 112, 113, 114, 127, 128, 193, 196, 255,
        ];
        for (block, third) in (0..=0xffff_u32).flat_map(|block| thirds.map(|third| (block, third)))
        {
            let address = Ipv4Addr::from_bits(block << 16 | third << 8 | 7);
            let inside = address.is_private() || address.is_loopback() || address.is_link_local();
            let odd = address.is_multicast()
                || address.is_broadcast()
                || address.is_documentation()
                || block >> 8 == 0;
            match classify_v4(address) {
                AddressClass::Public => assert!(!inside && !odd, "{address}"),
                AddressClass::Private(_) => {
                    assert!(inside || block >> 6 == 0x6440 >> 6, "{address}")
                }
                AddressClass::Forbidden(_) => assert!(!inside, "{address}"),
            }
        }
    }
}
