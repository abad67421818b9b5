//! Standard output of commands. Must never panic: the reader of a pipe may have ended, as with `tribunal plugin ls |
//! head`.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints a line like `println!`, and ends the process if it cannot be written: quietly if the pipe was closed,
/// otherwise with the reason.
macro_rules! out {
    ($($text:tt)*) => {
        $crate::commands::output::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use out;

/// Writes text to standard output.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    // Standard error may be closed as well.
    let _ = writeln!(std::io::stderr(), "tribunal: cannot write to standard output: {error}");
    std::process::exit(1);
}
