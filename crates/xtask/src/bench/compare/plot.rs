//! The plot: how far each server is from our target, all rows on one logarithmic axis.
//!
//! Promises: a bar begins at the target and goes left if the server is better, right if it is worse, whatever the unit; the text is
//! escaped, the file is well-formed XML and needs nothing else. Refuses to know: how the figures came about.

use std::fmt::Write as _;

use super::rows::{Row, Target};
use super::servers::ServerId;
use super::table::{Line, Table};
use crate::bench::spread::number;

const WIDTH: f64 = 1100.0;
/// Where the axis begins and ends; left of it stand the names.
const LEFT: f64 = 400.0;
const RIGHT: f64 = 1020.0;
const TOP: f64 = 110.0;
const BAR: f64 = 11.0;
const GAP: f64 = 12.0;
/// The axis reaches from a hundredth of the target to a thousand times of it; what is beyond ends at the edge with an arrow.
const LOWEST: f64 = -2.0;
const HIGHEST: f64 = 3.0;

/// Draws the rows that have a target.
pub(super) fn svg(table: &Table) -> String {
    let lines: Vec<&Line> = table.lines.iter().filter(|line| line.row.target != Target::None).collect();
    let bars: usize = lines.iter().map(|line| line.cells.len().max(1)).sum();
    let bottom = TOP + bars as f64 * BAR + lines.len() as f64 * GAP;
    let mut body = String::new();
    heading(&mut body, table);
    axis(&mut body, bottom);
    let mut y = TOP;
    for line in lines {
        y = row(&mut body, line, y) + GAP;
    }
    let height = bottom + 30.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn heading(body: &mut String, table: &Table) {
    let title = format!("Distance from the target, commit {}, {}", table.commit, table.date);
    text(body, 10.0, 24.0, "font-size=\"16\" font-weight=\"bold\"", &title);
    text(body, 10.0, 42.0, "fill=\"#555555\"", &table.machine);
    let mut x = 10.0;
    for (id, _) in &table.servers {
        rect(body, x, 55.0, 12.0, 12.0, colour(*id));
        text(body, x + 17.0, 65.0, "font-size=\"12\"", id.label());
        x += 110.0;
    }
}

/// Powers of ten, and the line of the target.
fn axis(body: &mut String, bottom: f64) {
    text(body, at(0.0) - 12.0, 86.0, "text-anchor=\"end\" fill=\"#555555\"", "← better than the target");
    text(body, at(0.0) + 12.0, 86.0, "fill=\"#555555\"", "worse →");
    for power in LOWEST as i32..=HIGHEST as i32 {
        let (x, factor) = (at(f64::from(power)), 10f64.powi(power));
        let style = if power == 0 { "stroke=\"#000000\" stroke-width=\"1.5\"" } else { "stroke=\"#dddddd\"" };
        let _ =
            writeln!(body, "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" {style}/>", TOP - 6.0);
        text(body, x, TOP - 9.0, "text-anchor=\"middle\" fill=\"#555555\"", &format!("{}×", factor));
    }
}

/// One row's bars from `y` down; returns where they end.
fn row(body: &mut String, line: &Line, y: f64) -> f64 {
    let height = line.cells.len().max(1) as f64 * BAR;
    text(body, LEFT - 10.0, y + height / 2.0 + 4.0, "text-anchor=\"end\" font-size=\"12\"", &label(&line.row));
    if line.cells.is_empty() {
        text(body, at(0.0) + 4.0, y + 9.0, "font-size=\"9\"", "not measured");
    }
    let end = y + height;
    let mut y = y;
    for (id, spread) in &line.cells {
        if let Some(power) = distance(line, spread.median) {
            bar(body, *id, power, &spread.text(), y);
        } else {
            text(body, at(0.0) + 4.0, y + 9.0, "font-size=\"9\"", &number(spread.median));
        }
        y += BAR;
    }
    end
}

fn label(row: &Row) -> String {
    format!("{}, target {}", row.name, row.target_text())
}

fn bar(body: &mut String, id: ServerId, power: f64, figure: &str, y: f64) {
    let (zero, end) = (at(0.0), at(power));
    // A bar of no length is still seen.
    let (from, width) = (zero.min(end), (end - zero).abs().max(1.5));
    rect(body, from, y + 1.0, width, BAR - 2.0, colour(id));
    let beyond = if power < LOWEST {
        "← "
    } else if power > HIGHEST {
        "→ "
    } else {
        ""
    };
    let (x, anchor) = if power < 0.0 { (from - 4.0, "end") } else { (from + width + 4.0, "start") };
    text(body, x, y + 9.0, &format!("text-anchor=\"{anchor}\" font-size=\"9\""), &format!("{beyond}{figure}"));
}

/// The power of ten by which the value is worse than the target; negative if it is better. Zero has none.
fn distance(line: &Line, value: f64) -> Option<f64> {
    let worse = match line.row.target {
        Target::AtMost(target) => value / target,
        Target::AtLeast(target) => target / value,
        Target::None => return None,
    };
    (worse > 0.0 && worse.is_finite()).then(|| worse.log10())
}

fn at(power: f64) -> f64 {
    LEFT + (power.clamp(LOWEST, HIGHEST) - LOWEST) / (HIGHEST - LOWEST) * (RIGHT - LEFT)
}

fn colour(id: ServerId) -> &'static str {
    match id {
        ServerId::Ours => "#0b6e4f",
        ServerId::Garage => "#f2a541",
        ServerId::GarageSync => "#c8553d",
        ServerId::S3sFs => "#6a5acd",
        ServerId::Nginx => "#8da9c4",
        ServerId::Hyper => "#b0b0b0",
    }
}

fn rect(body: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    let _ =
        writeln!(body, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>");
}

fn text(body: &mut String, x: f64, y: f64, style: &str, text: &str) {
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escaped(text));
}

/// Text as XML holds it; control characters, which it cannot hold, are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{at, distance, escaped, label, svg};
    use crate::bench::compare::rows::{PEAK, ROWS};
    use crate::bench::compare::servers::ServerId::{Garage, Hyper, Ours};
    use crate::bench::compare::table::tests::{line, table};

    /// Elements are closed in the order in which they were opened, values are quoted, and no text holds a bare `<` or `&`.
    fn is_well_formed(xml: &str) -> bool {
        let mut open = Vec::new();
        let mut rest = xml.trim();
        while let Some(start) = rest.find('<') {
            let Some(end) = rest[start..].find('>').map(|end| start + end) else { return false };
            let (before, tag) = (&rest[..start], &rest[start + 1..end]);
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
            let plain = entities.iter().fold(before.to_owned(), |text, entity| text.replace(entity, ""));
            if plain.contains(['&', '>']) || !tag.matches('"').count().is_multiple_of(2) {
                return false;
            }
            let name = tag.trim_matches('/').split_whitespace().next().unwrap_or_default();
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            rest = &rest[end + 1..];
        }
        open.is_empty() && rest.is_empty()
    }

    #[test]
    fn the_plot_is_well_formed_xml_whatever_the_processor_is_called() {
        let heads = line("HEAD c16, CPU s per 10k", &[(Ours, 0.4), (Garage, 2000.0), (Hyper, 0.0)]);
        let plot = svg(&table(vec![heads]));
        assert!(is_well_formed(&plot), "{plot}");
        assert!(
            plot.contains("2 x &lt;fast&gt; &amp; &quot;new&quot; processor") && plot.contains("target ≤ 0.2"),
            "{plot}"
        );
        assert!(
            !is_well_formed("<a>1 < 2</a>") && !is_well_formed("<a><b></a></b>") && !is_well_formed("<a b=\"></a>")
        );
    }

    #[test]
    fn better_is_left_of_the_target_for_times_and_for_rates() {
        let cpu = line("HEAD c16, CPU s per 10k", &[]);
        assert_eq!(distance(&cpu, 0.2), Some(0.0));
        assert!(distance(&cpu, 0.1).expect("a distance") < 0.0 && distance(&cpu, 0.0).is_none());
        let rate = line("PUT 4 KiB c16, ops/s, times Garage with fsync", &[]);
        assert!(distance(&rate, 44.0).expect("a distance") < 0.0 && distance(&rate, 2.2).expect("a distance") > 0.9);
        assert_eq!((at(-9.0), at(9.0)), (super::LEFT, super::RIGHT));
    }

    #[test]
    fn the_name_of_every_row_has_room_left_of_the_axis() {
        // A letter of this size is some 6.3 wide.
        for row in ROWS.iter().chain([&PEAK]) {
            assert!(label(row).chars().count() as f64 * 6.3 < super::LEFT - 10.0, "{}", label(row));
        }
    }

    #[test]
    fn control_characters_are_left_out() {
        assert_eq!(escaped("a\u{0}<b>\n\"&\""), "a&lt;b&gt;&quot;&amp;&quot;");
    }
}
