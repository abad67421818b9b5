//! Charts as SVG, readable on light and dark pages. Draws, and computes nothing but positions.

use std::fmt::Write as _;
use std::path::Path;

use crate::error::BenchError;

const STYLE: &str = "<style>text{font:12px system-ui,sans-serif;fill:#1d2733}.title{font-size:15px;font-weight:600}\
.quiet{fill:#5b6b7b}.grid{stroke:#c9d2dc;stroke-width:1}.spread{stroke:#1d2733;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e4eaf0}.quiet{fill:#9fb0c0}.grid{stroke:#3c4a58}.spread{stroke:#e4eaf0}}</style>";
/// Distinguishable with most kinds of colour vision, on white and on black.
const COLOURS: [&str; 7] = ["#0077bb", "#ee7733", "#009988", "#cc3311", "#aa4499", "#88aa33", "#7788aa"];

/// One bar with the spread of its turns.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of its subject.
    pub name: String,
    /// Its length.
    pub median: f64,
    /// Smallest turn.
    pub least: f64,
    /// Largest turn.
    pub most: f64,
}

/// Bars that share a scale.
#[derive(Clone, Debug)]
pub struct Group {
    /// Their common property.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One line of a panel; a missing figure is `None`.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name; empty if the panel's name suffices.
    pub name: String,
    /// One figure per position on the axis.
    pub figures: Vec<Option<f64>>,
}

/// One small chart with its own scale.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Figure and unit.
    pub name: String,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// Draws groups of horizontal bars, each group on its own scale.
#[must_use]
pub fn bars(title: &str, unit: &str, groups: &[Group]) -> String {
    const ROW: f64 = 20.0;
    const LEFT: f64 = 230.0;
    const WIDTH: f64 = 400.0;
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = 44.0 + groups.len() as f64 * 30.0 + rows as f64 * ROW;
    let mut svg = open(title, LEFT + WIDTH + 130.0, height);
    let names = names(groups.iter().flat_map(|group| group.bars.iter().map(|bar| bar.name.as_str())));
    let mut y = 40.0;
    for group in groups {
        text(&mut svg, 10.0, y + 14.0, "start", "title", &group.name);
        y += 24.0;
        let largest = group.bars.iter().map(|bar| bar.most).fold(f64::MIN_POSITIVE, f64::max);
        for bar in &group.bars {
            let at = |figure: f64| LEFT + WIDTH * figure / largest;
            let colour = COLOURS[names.iter().position(|name| *name == bar.name).unwrap_or(0) % COLOURS.len()];
            text(&mut svg, LEFT - 8.0, y + 13.0, "end", "", &bar.name);
            let _ = write!(
                svg,
                "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
                 <path class=\"spread\" d=\"M{:.1} {:.1}H{:.1}\"/>",
                y + 2.0,
                at(bar.median) - LEFT,
                at(bar.least),
                y + 9.0,
                at(bar.most)
            );
            text(
                &mut svg,
                at(bar.most.max(bar.median)) + 6.0,
                y + 13.0,
                "start",
                "",
                &format!("{} {unit}", round(bar.median)),
            );
            y += ROW;
        }
        y += 6.0;
    }
    svg + "</svg>\n"
}

/// Draws panels side by side over the same axis, whose positions are equidistant.
#[must_use]
pub fn panels(title: &str, axis: &str, places: &[String], panels: &[Panel]) -> String {
    const WIDTH: f64 = 250.0;
    const HEIGHT: f64 = 170.0;
    const LEFT: f64 = 58.0;
    const TOP: f64 = 74.0;
    let mut svg = open(title, panels.len() as f64 * (WIDTH + LEFT) + 20.0, TOP + HEIGHT + 52.0);
    for (index, panel) in panels.iter().enumerate() {
        let left = LEFT + index as f64 * (WIDTH + LEFT);
        let top = nice(panel.lines.iter().flat_map(|line| line.figures.iter().flatten()).copied().fold(0.0, f64::max));
        let x = |place: usize| left + WIDTH * (place as f64 + 0.5) / places.len().max(1) as f64;
        let y = |figure: f64| TOP + HEIGHT * (1.0 - figure / top);
        text(&mut svg, left, TOP - 28.0, "start", "title", &panel.name);
        for step in 0..=4 {
            let figure = top * f64::from(step) / 4.0;
            let _ = write!(svg, "<path class=\"grid\" d=\"M{left:.1} {:.1}h{WIDTH:.1}\"/>", y(figure));
            text(&mut svg, left - 5.0, y(figure) + 4.0, "end", "quiet", &round(figure));
        }
        for (place, name) in places.iter().enumerate() {
            text(&mut svg, x(place), TOP + HEIGHT + 16.0, "middle", "quiet", name);
        }
        text(&mut svg, left + WIDTH / 2.0, TOP + HEIGHT + 36.0, "middle", "", axis);
        for (number, line) in panel.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let mut path = String::new();
            for (place, figure) in line.figures.iter().enumerate() {
                let Some(figure) = figure else { continue };
                let go = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{go}{:.1} {:.1}", x(place), y(*figure));
                let _ =
                    write!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(place), y(*figure));
            }
            let _ = write!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
            if !line.name.is_empty() {
                let at = left + 4.0 + number as f64 * 84.0;
                let _ = write!(
                    svg,
                    "<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\" fill=\"{colour}\"/>",
                    TOP - 18.0
                );
                text(&mut svg, at + 13.0, TOP - 9.0, "start", "", &line.name);
            }
        }
    }
    svg + "</svg>\n"
}

/// Writes a chart to a file.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, svg: &str) -> Result<(), BenchError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, svg));
    written.map_err(BenchError::io(format!("write {}", path.display())))
}

fn open(title: &str, width: f64, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">{STYLE}\n",
        escape(title)
    );
    text(&mut svg, 10.0, 22.0, "start", "title", title);
    svg
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the next larger number of the form d, 1.5 or 2.5 times a power of ten, with one digit d.
fn nice(largest: f64) -> f64 {
    if largest <= 0.0 || !largest.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(largest.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    power * steps.into_iter().find(|step| step * power >= largest).unwrap_or(10.0)
}

/// Formats a number with as many digits as are useful to a reader.
#[must_use]
pub fn round(figure: f64) -> String {
    let text = match figure.abs() {
        n if n >= 100.0 || n == 0.0 => format!("{figure:.0}"),
        n if n >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    let digits = whole.trim_start_matches('-').len();
    let mut grouped = String::new();
    for (index, digit) in whole.trim_start_matches('-').chars().enumerate() {
        if index > 0 && (digits - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        let shown: Vec<_> = [0.0, 0.123, 12.34, 123.4, 1234.5, 1_234_567.0].into_iter().map(round).collect();
        assert_eq!(shown, ["0", "0.12", "12.3", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn scales_end_just_above_the_largest_value() {
        let tops: Vec<_> = [0.0, 0.9, 1.0, 101.0, 260.0, 9_999.0].into_iter().map(nice).collect();
        assert_eq!(tops, [1.0, 1.0, 1.0, 150.0, 300.0, 10_000.0]);
    }

    #[test]
    fn names_cannot_break_the_markup() {
        let bar = Bar { name: "a<b>&\"".to_owned(), median: 2.0, least: 1.0, most: 3.0 };
        let svg = bars("t", "/s", &[Group { name: "g".to_owned(), bars: vec![bar] }]);
        assert!(svg.contains("a&lt;b>&amp;&quot;") && svg.ends_with("</svg>\n"));
    }
}
