//! `tribunal config print` and `check`

use std::path::Path;
use std::process::ExitCode;

use crate::cluster::first_start;
use crate::commands::config_help;
use crate::commands::last_line::write_reason;
use crate::commands::output::{out, write};
use crate::commands::serve::configured_log_filter;
use crate::commit::recovery;
use crate::config::Config;
use crate::configured::Configured;
use crate::ignored_settings::ignored_in_environment;

/// Exit status of a check that found errors; 1 means that the check could not run.
const HAS_ERRORS: u8 = 2;

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
    write(format_args!("{}", text.map_err(not_written)?));
    Ok(())
}

/// Checks a configuration and the files that it names, and whether it is that of the member whose data directory it names,
/// if that exists. Prints the effective configuration, or the errors.
///
/// # Errors
/// If the configuration cannot be printed. Errors in it are reported through the exit code.
pub fn check(file: Option<&Path>, json: bool) -> Result<ExitCode, String> {
    let mut warnings = ignored_in_environment();
    let checked = Config::read(file).and_then(|config| {
        let configured = Configured::check(&config, &mut warnings)?;
        let contradiction = match configured.cluster {
            Some((membership, _)) => first_start::contradiction(&config.data, &membership),
            None => recovery::contradiction(&config.data),
        };
        match contradiction {
            Some(fault) => Err(fault),
            None => Ok(config),
        }
    });
    let checked = match (checked, configured_log_filter().err()) {
        (Ok(_), Some(fault)) => Err(fault),
        (Err(faults), Some(fault)) => Err(format!("{faults}\n{fault}")),
        (checked, None) => checked,
    };
    if json {
        let errors: Vec<&str> = checked.as_ref().err().map_or_else(Vec::new, |errors| errors.lines().collect());
        let told = serde_json::json!({ "config": checked.as_ref().ok(), "warnings": warnings, "errors": errors });
        out!("{told}");
    } else {
        warnings.iter().for_each(|warning| write_reason(&format!("warning: {warning}")));
        match &checked {
            Ok(config) => write(format_args!("{}", toml::to_string(config).map_err(not_written)?)),
            Err(errors) => errors.lines().for_each(write_reason),
        }
    }
    Ok(if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(HAS_ERRORS) })
}

fn not_written(error: impl std::fmt::Display) -> String {
    format!("cannot write the configuration: {error}")
}
