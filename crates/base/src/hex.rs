//! Hexadecimal encoding for ids, digests and random values: written in lowercase, read in either
//! case.

use std::fmt;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes `bytes` as hexadecimal text: two lowercase digits for each byte.
pub fn write_hex(f: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    let mut text = [0; 64];
    for chunk in bytes.chunks(text.len() / 2) {
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(chunk) {
            *pair = [
                HEX_DIGITS[usize::from(byte >> 4)],
                HEX_DIGITS[usize::from(byte & 15)],
            ];
        }
        f.write_str(str::from_utf8(&text[..2 * chunk.len()]).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

/// Returns the text that [`write_hex`] writes.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(HEX_DIGITS[usize::from(nibble)]))
        .collect()
}

/// Decodes hexadecimal text in either case. Returns `None` if the length is odd or a character is
/// not a hexadecimal digit.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(parse_nibble(*high)? << 4 | parse_nibble(*low)?))
        .collect()
}

/// Decodes exactly `N` bytes, like [`decode_hex`]. Returns `None` if the text has another length.
pub fn decode_hex_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    decode_hex(text)?.try_into().ok()
}

const fn parse_nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode_hex(&all);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"));
        assert_eq!(decode_hex(&text), Some(all));
        let mut written = String::new();
        write_hex(&mut written, &[0x0a, 0xf0]).unwrap();
        assert_eq!(written, "0af0");
    }

    #[test]
    fn what_is_not_hex_is_refused() {
        for text in ["0", "0g", "0G", "é", "/0", ":0", "`0", "@0"] {
            assert_eq!(decode_hex(text), None, "{text:?}");
        }
        assert_eq!(decode_hex_array::<2>("00ff"), Some([0, 255]));
        assert_eq!(decode_hex_array::<2>("aBfA"), Some([0xab, 0xfa]));
        assert_eq!(decode_hex_array::<2>("00ff00"), None);
    }
}
