//! Reads a file named by a setting of the configuration, with errors that contain both names.

use std::path::Path;

/// Reads a file named by a setting.
///
/// # Errors
/// The setting and the file, if it cannot be read or is empty: every file named here requires content.
pub fn read_named(setting: &str, file: &Path) -> Result<Vec<u8>, String> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|error| format!("`{setting}`: cannot read {name}: {error}"))?;
    if bytes.trim_ascii().is_empty() {
        return Err(format!("`{setting}`: {name} is empty"));
    }
    Ok(bytes)
}
