//! Tables: framed for a terminal, or Markdown.

/// Rows under two-line heads, in frames, all cells aligned to the right.
pub struct Framed {
    heads: Vec<[&'static str; 2]>,
    rows: Vec<Vec<String>>,
}

impl Framed {
    /// A table without rows.
    #[must_use]
    pub fn new(heads: Vec<[&'static str; 2]>) -> Self {
        Self { heads, rows: Vec::new() }
    }

    /// Adds a row with a cell for each head.
    pub fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table as text.
    #[must_use]
    pub fn text(&self) -> String {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column)).map(String::len);
        let widths: Vec<usize> = (0..)
            .zip(&self.heads)
            .map(|(column, [a, b])| cells(column).chain([a.len(), b.len()]).max().unwrap_or(0))
            .collect();
        let frame: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
        let line = |cells: &[&str]| {
            let cell = |(text, width): (&&str, &usize)| format!("| {text:>width$} ");
            format!("{}|\n", cells.iter().zip(&widths).map(cell).collect::<String>())
        };
        let mut text = format!("{frame}+\n");
        for half in 0..2 {
            text += &line(&self.heads.iter().map(|head| head[half]).collect::<Vec<_>>());
        }
        text += &format!("{frame}+\n");
        for row in &self.rows {
            text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        text + &format!("{frame}+\n")
    }
}

/// The head of a Markdown table; its columns are separated by " | ".
#[must_use]
pub fn markdown_head(columns: &str) -> String {
    let count = columns.split('|').count();
    format!("| {columns} |\n|{}\n", "---|".repeat(count))
}

/// A row of a Markdown table. The lines of a cell are joined by semicolons, its bars replaced.
#[must_use]
pub fn markdown_row(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let cell = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("; ").replace('|', "/");
    let cells: String = cells.into_iter().map(|text| format!(" {} |", cell(text.as_ref()))).collect();
    format!("|{cells}\n")
}

/// A number without decimals, thousands separated by commas; "–" if it is not finite.
#[must_use]
pub fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let count = digits.len();
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (count - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fit_their_cells() {
        let mut table = Framed::new(vec![["A", ""], ["Longer", "x"]]);
        table.row(vec!["12345".into(), "1".into()]);
        let text = table.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "+-------+--------+");
        assert_eq!(lines[1], "|     A | Longer |");
        assert_eq!(lines[4], "| 12345 |      1 |");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(
            (grouped(999.0), grouped(1_000.4), grouped(-5_000.0)),
            ("999".into(), "1,000".into(), "-5,000".into())
        );
        assert_eq!(grouped(f64::NAN), "–");
    }
}
