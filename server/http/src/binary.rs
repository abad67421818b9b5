//! Binary keys and values in JSON: base64.

use base64::DecodeError;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Start of a binary value as it is stored: a JSON object with the value in base64.
pub(crate) const BINARY_OPEN: &str = "{\"$b64\":\"";
/// End of a binary value as it is stored.
pub(crate) const BINARY_CLOSE: &str = "\"}";

/// Returns why [`BASE64`] cannot decode a text, for display.
#[must_use]
pub fn not_base64(error: DecodeError) -> &'static str {
    match error {
        DecodeError::InvalidByte(..) => {
            "is not base64: the standard alphabet of RFC 4648, section 4 (`+` and `/`, not `-` and `_`)"
        }
        DecodeError::InvalidLength(_) => "is not base64: the last group of four characters is incomplete",
        DecodeError::InvalidLastSymbol(..) => {
            "is not base64 as an encoder writes it: the last character has bits that belong to no byte, and they must be 0 \
             (RFC 4648, section 3.5)"
        }
        DecodeError::InvalidPadding => {
            "is not base64: the padding (`=`) must fill the last group of four, or be left out"
        }
    }
}

/// Decodes standard base64, padded or not.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
