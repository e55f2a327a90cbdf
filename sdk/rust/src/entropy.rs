//! Unpredictable random values that are equal on every replay.

use crate::host;

/// Maximum number of bytes of one host call.
const BYTES_MAX: usize = 4_096;

/// Returns `length` random bytes.
pub fn random_bytes(length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let wanted = (length - bytes.len()).min(BYTES_MAX);
        bytes.extend(host::random(wanted as u32));
    }
    bytes
}

/// A random number.
pub fn random_u64() -> u64 {
    let mut number = [0; 8];
    for (index, byte) in number.iter_mut().zip(host::random(8)) {
        *index = byte;
    }
    u64::from_le_bytes(number)
}
