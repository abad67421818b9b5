//! Standard output of commands. Must never panic: the reader of a pipe may have ended, as with `tribunal plugin ls |
//! head`.

use std::borrow::Cow;
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

/// Returns text that came from elsewhere, with those characters escaped that control a terminal or reorder a line: the name
/// of a row is chosen by any client, and printed for an operator.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let reorders = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(|c: char| c.is_control() || reorders(c)) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if reorders(c) => escaped.extend(c.escape_unicode()),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped.into()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_cannot_control_a_terminal() {
        assert_eq!(printable("acct/1 \u{e9}"), "acct/1 \u{e9}");
        assert_eq!(printable("x\u{1b}[31m\u{7}\u{9b}3\r\nF\u{202e}"), r"x\u{1b}[31m\u{7}\u{9b}3\r\nF\u{202e}");
    }
}
