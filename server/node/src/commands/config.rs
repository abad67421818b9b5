//! `tribunal config print`

use std::path::Path;

use crate::commands::config_help;
use crate::commands::output::write;
use crate::config::Config;

/// Prints the effective configuration: commented TOML that `tribunal serve --config` reads, or JSON.
///
/// # Errors
/// If the file or a variable is wrong.
pub fn print(file: Option<&Path>, json: bool) -> Result<(), String> {
    let config = Config::load(file)?;
    let text = if json {
        serde_json::to_string(&config).map(|line| line + "\n").map_err(|error| error.to_string())
    } else {
        config_help::commented(&config)
    };
    write(format_args!("{}", text.map_err(|error| format!("cannot write the configuration: {error}"))?));
    Ok(())
}
