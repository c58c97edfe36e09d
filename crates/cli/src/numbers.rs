//! Numbers for people.

/// `12,345,678`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 packet`, `1,200 packets`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}

/// `14.6 MB`.
pub(crate) fn bytes(number: u64) -> String {
    let mut scaled = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if scaled < 1_000.0 {
            return match unit {
                "B" => format!("{scaled:.0} {unit}"),
                _ => format!("{scaled:.1} {unit}"),
            };
        }
        scaled /= 1_000.0;
    }
    format!("{scaled:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in [(0, "0 days"), (1, "1 day"), (1_200, "1,200 days")] {
            assert_eq!(counted(number, "day"), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (u64::MAX, "18446744.1 TB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }
}
