//! Plots, drawn by hand: bars with the median at their end, and a line from the lowest round to the highest.

use std::fmt::Write;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// What is written behind it.
    pub(crate) text: String,
    /// Whether it is what this is all about.
    pub(crate) is_ours: bool,
}

/// Bars that belong together, under a heading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 120.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 34.0;
const TOP: f64 = 44.0;

/// A plot for light pages and dark ones. Where values differ by powers of ten, a logarithmic scale shows them.
pub(crate) fn plot(title: &str, unit: &str, groups: &[Group], is_logarithmic: bool) -> String {
    let rows = groups.iter().map(|it| it.bars.len()).sum::<usize>() as f64;
    let height = TOP + groups.len() as f64 * HEAD + rows * ROW + 16.0;
    let bars = || groups.iter().flat_map(|it| &it.bars);
    let most = bars().map(|it| it.high.max(it.value)).fold(0.0, f64::max);
    let least = bars().map(|it| it.low).filter(|it| *it > 0.0).fold(most, f64::min);
    let place = |value: f64| {
        let share = if most <= 0.0 || value <= 0.0 {
            0.0
        } else if is_logarithmic {
            // The shortest bar is still one.
            let floor = (least / 2.0).ln();
            ((value.ln() - floor) / (most.ln() - floor).max(f64::MIN_POSITIVE)).max(0.0)
        } else {
            value / most
        };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let mut svg = String::new();
    // Writing to a String does not fail.
    let mut put = |text: std::fmt::Arguments<'_>| _ = svg.write_fmt(text);
    put(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{0}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
.title {{ font-weight: 600; font-size: 15px }} .head {{ font-weight: 600 }} .faint {{ fill: #6e7781 }}
.bar {{ fill: #8c959f }} .ours {{ fill: #0969da }} .range {{ stroke: #24292f; stroke-width: 1.5 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .faint {{ fill: #8d96a0 }} .bar {{ fill: #6e7681 }} .ours {{ fill: #4493f8 }} .range {{ stroke: #e6edf3 }}
}}
</style>
<text class="title" x="8" y="22">{0}</text><text class="faint" x="{1}" y="22" text-anchor="end">{2}</text>
"##,
        escaped(title),
        WIDTH - 8.0,
        escaped(&if is_logarithmic { format!("{unit}, logarithmic") } else { unit.to_owned() }),
    ));
    let mut y = TOP;
    for group in groups {
        put(format_args!(
            "<text class=\"head\" x=\"8\" y=\"{:.1}\">{}</text>\n",
            y + 18.0,
            escaped(&group.title)
        ));
        y += HEAD;
        for bar in &group.bars {
            let (end, low, high) = (place(bar.value), place(bar.low), place(bar.high));
            let middle = y + ROW / 2.0;
            let class = if bar.is_ours { "ours" } else { "bar" };
            put(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"{class}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
                 <line class=\"range\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                LEFT - 8.0,
                middle + 4.5,
                escaped(&bar.label),
                y + 4.0,
                (end - LEFT).max(1.0),
                ROW - 8.0,
                end.max(high) + 8.0,
                middle + 4.5,
                escaped(&bar.text),
            ));
            y += ROW;
        }
    }
    put(format_args!("</svg>\n"));
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64) -> Bar {
        let text = value.to_string();
        Bar { label: label.to_owned(), value, low: value, high: value, text, is_ours: false }
    }

    #[test]
    fn the_longest_bar_takes_the_whole_width() {
        let group = Group { title: "a < b".to_owned(), bars: vec![bar("x", 5.0), bar("y", 10.0)] };
        let svg = plot("Rates", "records/s", &[group], false);
        assert!(svg.contains("width=\"450.0\"") && svg.contains("width=\"225.0\""), "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn nothing_at_all_is_a_plot_too() {
        let group = Group { title: String::new(), bars: vec![bar("x", 0.0)] };
        assert!(plot("", "", &[group], true).ends_with("</svg>\n"));
    }
}
