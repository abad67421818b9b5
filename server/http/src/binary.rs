//! Binary keys and values within JSON: base64.

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// What is wrong with text that [`BASE64`] cannot read, for people.
pub const NOT_BASE64: &str =
    "is not base64: the standard alphabet of RFC 4648, section 4 (`+` and `/`, not `-` and `_`)";

/// Reads standard base64, padded or not.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
