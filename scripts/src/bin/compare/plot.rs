//! Ratio against speed, as SVG: a column for each direction, a row for each number of threads.

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::Row;

/// Colours that are dark enough on white, and distinct for colour-blind people (after Okabe and Ito).
const COLOURS: [(&str, RGBColor); 7] = [
    ("pz", RGBColor(213, 94, 0)),
    ("zstd", RGBColor(0, 114, 178)),
    ("lz4", RGBColor(0, 158, 115)),
    ("xz", RGBColor(204, 121, 167)),
    ("bzip2", RGBColor(90, 90, 90)),
    ("bzip3", RGBColor(0, 0, 0)),
    ("bsc", RGBColor(150, 120, 0)),
];

/// The colours of pz with each device.
const OF_DEVICES: [RGBColor; 4] =
    [RGBColor(86, 180, 233), RGBColor(120, 80, 200), RGBColor(230, 159, 0), RGBColor(150, 60, 60)];

const PANEL: (u32, u32) = (760, 520);

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws all measurements of one file.
pub fn draw(path: &Path, file: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let threads: BTreeSet<usize> = rows.iter().map(|row| row.threads).collect();
    let size = (2 * PANEL.0, threads.len() as u32 * PANEL.1);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((threads.len(), 2));
    let ratios = span(rows.iter().map(Row::ratio), 0.06);
    for (panels, &threads) in panels.chunks(2).zip(&threads) {
        // Also show programs with only one thread here, since users would run them like this.
        let shown: Vec<&Row> = rows
            .iter()
            .filter(|row| row.threads == threads || (!row.is_parallel && row.threads == 1))
            .collect();
        let on = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        let compress = |row: &Row| row.speed(&row.compress);
        let decompress = |row: &Row| row.speed(&row.decompress);
        panel(&panels[0], &format!("{file}: compression, {on}"), &shown, compress, &ratios)?;
        panel(&panels[1], &format!("{file}: decompression, {on}"), &shown, decompress, &ratios)?;
    }
    root.present()?;
    Ok(())
}

/// The range of some numbers, with a margin on both sides.
fn span(values: impl Iterator<Item = f64> + Clone, margin: f64) -> Range<f64> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(0.0, f64::max);
    let margin = (high - low).max(low * 0.1) * margin;
    low - margin..high + margin
}

fn panel(
    area: &Panel<'_>,
    title: &str,
    rows: &[&Row],
    speed: impl Fn(&Row) -> f64,
    ratios: &Range<f64>,
) -> Result<(), Box<dyn Error>> {
    // On a logarithmic axis, add the margin to the logarithm.
    let speeds = span(rows.iter().map(|row| speed(row).log10()), 0.08);
    let speeds = 10_f64.powf(speeds.start)..10_f64.powf(speeds.end);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(50)
        .y_label_area_size(60)
        .build_cartesian_2d(speeds.log_scale(), ratios.clone())?;
    chart
        .configure_mesh()
        .x_desc("MB/s (10^6 bytes of the source a second), logarithmic")
        .y_desc("ratio: source bytes / compressed bytes")
        .x_label_formatter(&|&x| tick(x))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    let mut series: Vec<String> = Vec::new();
    for row in rows.iter().map(|row| row.series()) {
        if !series.contains(&row) {
            series.push(row);
        }
    }
    let mut devices = OF_DEVICES.iter().cycle();
    for name in series {
        let of: Vec<&&Row> = rows.iter().filter(|row| row.series() == name).collect();
        let of_program = COLOURS.iter().find(|(program, _)| *program == name);
        let colour = of_program.map(|(_, colour)| colour).or_else(|| devices.next());
        let colour = *colour.unwrap_or(&BLACK);
        let is_zstd = name == "zstd";
        // A line joins levels. A pipeline is a separate point.
        let joined = of.iter().filter(|row| !row.label.starts_with("-p"));
        let line = joined.map(|row| (speed(row), row.ratio()));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
        chart.draw_series(of.iter().map(|row| {
            let label = row.label.trim_start_matches("-p ").to_string();
            let style = ("sans-serif", 14).into_font().color(&colour);
            // The lines of pz and zstd run close together: their labels stand on different sides.
            let (anchor, place) = match is_zstd {
                true => (Pos::new(HPos::Right, VPos::Top), (-5, 4)),
                false => (Pos::new(HPos::Left, VPos::Bottom), (6, -4)),
            };
            EmptyElement::at((speed(row), row.ratio()))
                + Circle::new((0, 0), 4, colour.filled())
                + Text::new(label, place, style.pos(anchor))
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(180, 180, 180))
        .label_font(("sans-serif", 16))
        .draw()?;
    Ok(())
}

/// The label of a tick. There is room only for 1, 2 and 5 times each power of ten.
fn tick(x: f64) -> String {
    let first = x / 10_f64.powf(x.log10().floor());
    let is_shown = [1.0, 2.0, 5.0, 10.0].iter().any(|shown| (first - shown).abs() < 1e-6);
    if is_shown { format!("{x:.0}") } else { String::new() }
}
